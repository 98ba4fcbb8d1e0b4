#include "kernels/common/launch_environment.h"

#include <map>
#include <string>

#include "gtest/gtest.h"
#include "kernels/common/slurm_tasks.h"

namespace tf_smddp {
namespace {

using Environment = std::map<std::string, std::string>;

Status Read(const Environment& environment, Launch* launch) {
  return ReadLaunch(
      [&](const char* name) -> const char* {
        const auto found = environment.find(name);
        return found == environment.end() ? nullptr : found->second.c_str();
      },
      launch);
}

Launch Expect(const Environment& environment, int rank, int size) {
  Launch launch;
  const Status status = Read(environment, &launch);
  EXPECT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(launch.rank, rank);
  EXPECT_EQ(launch.size, size);
  EXPECT_EQ(launch.local_rank, rank);
  EXPECT_EQ(launch.local_size, size);
  return launch;
}

void ExpectLaunchError(const Environment& environment, const std::string& part) {
  Launch launch;
  const Status status = Read(environment, &launch);
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find(part), std::string::npos)
      << "'" << status.message() << "' has no '" << part << "'";
}

// The families of the launchers that name four variables, for a rank of a size.
Environment Four(const std::string& rank, const std::string& size, const std::string& local_rank,
                 const std::string& local_size, int value, int of) {
  return {{rank, std::to_string(value)},
          {size, std::to_string(of)},
          {local_rank, std::to_string(value)},
          {local_size, std::to_string(of)}};
}
Environment OpenMpi(int rank, int size) {
  Environment found = Four("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
                           "OMPI_COMM_WORLD_LOCAL_SIZE", rank, size);
  found["PMIX_NAMESPACE"] = "557056001";
  return found;
}
Environment Hydra(int rank, int size) {
  return Four("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS", rank, size);
}
Environment Mvapich(int rank, int size) {
  return Four("MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_LOCAL_RANK",
              "MV2_COMM_WORLD_LOCAL_SIZE", rank, size);
}
Environment Torchrun(int rank, int size) {
  Environment found = Four("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", rank, size);
  found["TORCHELASTIC_RUN_ID"] = "none";
  found["MASTER_PORT"] = "29500";
  return found;
}
Environment Horovodrun(int rank, int size) {
  Environment found =
      Four("HOROVOD_RANK", "HOROVOD_SIZE", "HOROVOD_LOCAL_RANK", "HOROVOD_LOCAL_SIZE", rank, size);
  found["HOROVOD_GLOO_RENDEZVOUS_PORT"] = "41234";
  return found;
}
Environment Slurm(int rank, int size) {
  return {{"SLURM_PROCID", std::to_string(rank)},
          {"SLURM_LOCALID", std::to_string(rank)},
          {"SLURM_NODEID", "0"},
          {"SLURM_STEP_NUM_TASKS", std::to_string(size)},
          {"SLURM_STEP_TASKS_PER_NODE", std::to_string(size)},
          {"SLURM_NTASKS", std::to_string(size)},
          {"SLURM_JOB_ID", "12"},
          {"SLURM_STEP_ID", "3"}};
}
Environment Ours(int rank, int size) {
  return {{"SMDDP_RANK", std::to_string(rank)}, {"SMDDP_SIZE", std::to_string(size)}};
}

Environment Both(Environment one, const Environment& other) {
  for (const auto& [name, value] : other) one[name] = value;
  return one;
}

Environment Without(Environment environment, const std::string& name) {
  environment.erase(name);
  return environment;
}

struct Known {
  const char* name;
  Environment (*make)(int rank, int size);
  std::vector<std::string> required;
  bool some_is_an_error;
};

const Known kKnown[] = {
    {"Open MPI's mpirun",
     OpenMpi,
     {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
      "OMPI_COMM_WORLD_LOCAL_SIZE"},
     true},
    {"the mpiexec of MPICH or Intel MPI", Hydra, {"PMI_RANK", "PMI_SIZE"}, false},
    {"MVAPICH2's mpirun",
     Mvapich,
     {"MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_LOCAL_RANK", "MV2_COMM_WORLD_LOCAL_SIZE"},
     true},
    {"torchrun", Torchrun, {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"}, false},
    {"horovodrun",
     Horovodrun,
     {"HOROVOD_RANK", "HOROVOD_SIZE", "HOROVOD_LOCAL_RANK", "HOROVOD_LOCAL_SIZE"},
     true},
    {"Slurm's srun",
     Slurm,
     {"SLURM_PROCID", "SLURM_LOCALID", "SLURM_NODEID", "SLURM_STEP_TASKS_PER_NODE", "SLURM_JOB_ID",
      "SLURM_STEP_ID"},
     true},
};

TEST(LaunchEnvironment, EveryLauncherSaysWhoARankIs) {
  for (const Known& known : kKnown) {
    SCOPED_TRACE(known.name);
    for (int size = 1; size <= 64; size = size < 4 ? size + 1 : size * 2) {
      for (int rank = 0; rank < size; ++rank) {
        const Launch launch = Expect(known.make(rank, size), rank, size);
        EXPECT_EQ(launch.launcher, known.name);
        EXPECT_EQ(launch.note, "");
      }
    }
  }
}

TEST(LaunchEnvironment, NothingSetIsOneProcess) {
  const Launch launch = Expect({}, 0, 1);
  EXPECT_EQ(launch.launcher, "");
  EXPECT_EQ(launch.note, "");
}

TEST(LaunchEnvironment, OneMissingVariableIsAnErrorOrTheLauncherIsNotThere) {
  for (const Known& known : kKnown) {
    for (const std::string& name : known.required) {
      SCOPED_TRACE(name);
      const Environment cut = Without(known.make(1, 2), name);
      // An empty value is the same as none.
      const Environment emptied = Both(cut, {{name, ""}});
      if (known.some_is_an_error) {
        ExpectLaunchError(cut, name + " is not set though");
        ExpectLaunchError(cut, known.name);
        ExpectLaunchError(emptied, name + " is not set though");
      } else {
        EXPECT_EQ(Expect(cut, 0, 1).launcher, "");
        EXPECT_EQ(Expect(emptied, 0, 1).launcher, "");
      }
    }
  }
}

TEST(LaunchEnvironment, WrongValuesAreNamed) {
  for (const Known& known : kKnown) {
    SCOPED_TRACE(known.name);
    const std::string rank = known.required[0];
    for (const char* wrong : {"one", "1x", " ", "99999999999", "1.5"}) {
      ExpectLaunchError(Both(known.make(1, 2), {{rank, wrong}}), rank + "='" + wrong + "'");
      ExpectLaunchError(Both(known.make(1, 2), {{rank, wrong}}), known.name);
    }
    for (const char* outside : {"-1", "2"}) {
      ExpectLaunchError(Both(known.make(1, 2), {{rank, outside}}),
                        rank + "=" + outside + " is outside [0, 1]");
      ExpectLaunchError(Both(known.make(1, 2), {{rank, outside}}), known.name);
    }
    ExpectLaunchError(known.make(0, 65), "=65 is more than 64");
    ExpectLaunchError(known.make(0, 0), "=0 is outside [1,");
  }
}

TEST(LaunchEnvironment, SeveralHosts) {
  const auto expect_second_of_two = [](const Environment& environment, MpiKind kind) {
    Launch launch;
    const Status status = Read(environment, &launch);
    ASSERT_TRUE(status.ok()) << status.message();
    EXPECT_EQ(launch.rank, 3);
    EXPECT_EQ(launch.size, 4);
    EXPECT_EQ(launch.local_rank, 1);
    EXPECT_EQ(launch.local_size, 2);
    EXPECT_EQ(launch.mpi_kind, kind);
  };
  expect_second_of_two(
      Both(OpenMpi(3, 4), {{"OMPI_COMM_WORLD_LOCAL_RANK", "1"}, {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}}),
      MpiKind::kOpenMpi);
  expect_second_of_two(Both(Hydra(3, 4), {{"MPI_LOCALRANKID", "1"}, {"MPI_LOCALNRANKS", "2"}}),
                       MpiKind::kMpich);
  const Environment slurm = Both(
      Slurm(3, 4), {{"SLURM_NODEID", "1"}, {"SLURM_LOCALID", "1"}, {"SLURM_STEP_TASKS_PER_NODE", "2(x2)"}});
  expect_second_of_two(Both(slurm, {{"PMI_FD", "7"}}), MpiKind::kMpich);
  expect_second_of_two(Both(slurm, {{"PMIX_NAMESPACE", "slurm.1"}}), MpiKind::kOpenMpi);
  expect_second_of_two(
      Both(OpenMpi(0, 2), Both(Ours(3, 4), {{"SMDDP_LOCAL_RANK", "1"}, {"SMDDP_LOCAL_SIZE", "2"}})),
      MpiKind::kOpenMpi);
}

// "HOST:PORT" of the process manager that rank 3 of 4, the second of two on its host, finds.
std::string ProcessManagerOf(const Environment& environment) {
  Launch launch;
  const Status status = Read(environment, &launch);
  EXPECT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(launch.rank, 3);
  const ProcessManagerAddress& address = launch.process_manager;
  if (address.host.empty()) return "";
  EXPECT_EQ(launch.mpi_kind, MpiKind::kMpich);
  EXPECT_TRUE(launch.mpi_kind_is_sure);
  return address.host + ":" + std::to_string(address.port);
}

TEST(LaunchEnvironment, AProcessManagerWhereTheLauncherBringsNone) {
  const Environment master = {{"MASTER_ADDR", "n1"}, {"MASTER_PORT", "29500"}};
  const Environment torchrun = Both(Torchrun(3, 4), {{"LOCAL_RANK", "1"}, {"LOCAL_WORLD_SIZE", "2"}});
  const Environment slurm = Both(
      Slurm(3, 4), {{"SLURM_NODEID", "1"}, {"SLURM_LOCALID", "1"}, {"SLURM_STEP_TASKS_PER_NODE", "2(x2)"}});
  const Environment nodes = {{"SLURM_STEP_NODELIST", "node[03-04]"}};
  const Environment ours = Both(Ours(3, 4), {{"SMDDP_LOCAL_RANK", "1"}, {"SMDDP_LOCAL_SIZE", "2"}});

  EXPECT_EQ(ProcessManagerOf(Both(torchrun, master)), "n1:29501");
  EXPECT_EQ(ProcessManagerOf(Both(ours, master)), "n1:29501");
  EXPECT_EQ(ProcessManagerOf(Both(slurm, nodes)), "node03:61195");  // job 12, step 3
  EXPECT_EQ(ProcessManagerOf(Both(Both(slurm, nodes), master)), "n1:29501");
  EXPECT_EQ(ProcessManagerOf(Both(Both(slurm, nodes), {{"MASTER_ADDR", "n1"}})), "n1:61195");
  // The agents of torchrun may be tasks of Slurm, which brings a process manager for them, not for the ranks.
  EXPECT_EQ(ProcessManagerOf(Both(Both(torchrun, master), {{"PMI_FD", "7"}})), "n1:29501");
  // A script has set torchrun's variables, or ours, from Slurm's.
  const Environment pmi2 = Both(slurm, {{"PMI_FD", "7"}});
  EXPECT_EQ(ProcessManagerOf(Both(Without(torchrun, "TORCHELASTIC_RUN_ID"), pmi2)), "");
  EXPECT_EQ(ProcessManagerOf(Both(ours, pmi2)), "");
  EXPECT_EQ(ProcessManagerOf(Both(ours, Both(slurm, nodes))), "node03:61195");

  // On one host there is no need.
  EXPECT_EQ(ProcessManagerOf(Torchrun(3, 4)), "");
  EXPECT_EQ(ProcessManagerOf(Both(Slurm(3, 4), nodes)), "");
}

TEST(LaunchEnvironment, AProcessManagerWithoutAPlace) {
  const Environment torchrun = Both(Torchrun(3, 4), {{"LOCAL_RANK", "1"}, {"LOCAL_WORLD_SIZE", "2"}});
  ExpectLaunchError(
      torchrun,
      "LOCAL_WORLD_SIZE=2 of WORLD_SIZE=4: the ranks are on several hosts, which MPI joins, and "
      "torchrun brings no process manager for it: set MASTER_ADDR to the name of rank 0's host");
  ExpectLaunchError(Both(Without(torchrun, "MASTER_PORT"), {{"MASTER_ADDR", "n1"}}),
                    "MASTER_PORT is not set though MASTER_ADDR is");
  for (const char* port : {"0", "65535", "-1"}) {
    ExpectLaunchError(Both(torchrun, {{"MASTER_ADDR", "n1"}, {"MASTER_PORT", port}}),
                      std::string("MASTER_PORT=") + port + " is outside [1, 65534]");
  }
  ExpectLaunchError(Both(torchrun, {{"MASTER_ADDR", "n1"}, {"MASTER_PORT", "x"}}), "MASTER_PORT='x'");
}

TEST(FirstSlurmHost, OfEachNotation) {
  const std::map<std::string, std::string> first = {
      {"", ""},
      {"one", "one"},
      {"one,two", "one"},
      {"n[1-3]", "n1"},
      {"n[01-03,7],other", "n01"},
      {"n[7,9]", "n7"},
      {"n[12]", "n12"},
      {"rack[2-3]n[05-06]", "rack2n05"},
      {"n[1-2]-ib", "n1-ib"},
      {"n[1", "n1"},
  };
  for (const auto& [nodes, host] : first) EXPECT_EQ(FirstSlurmHost(nodes), host) << nodes;
}

TEST(LaunchEnvironment, MoreRanksThanOneHostTakes) {
  const Environment on_host = {{"OMPI_COMM_WORLD_LOCAL_RANK", "2"}, {"OMPI_COMM_WORLD_LOCAL_SIZE", "64"}};
  Launch launch;
  const Status status = Read(Both(OpenMpi(130, 192), on_host), &launch);
  ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(launch.size, 192);
  EXPECT_EQ(launch.local_size, 64);
  ExpectLaunchError(Both(OpenMpi(130, 192), Both(on_host, {{"OMPI_COMM_WORLD_LOCAL_SIZE", "65"}})),
                    "OMPI_COMM_WORLD_LOCAL_SIZE=65 is more than 64");
  ExpectLaunchError(Both(OpenMpi(130, 16'385), on_host), "OMPI_COMM_WORLD_SIZE=16385 is outside [1, 16384]");
}

TEST(LaunchEnvironment, TheOrderOfPrecedence) {
  // Each pair, in both orders of ranks: the earlier of the list wins when both say several.
  for (std::size_t first = 0; first < std::size(kKnown); ++first) {
    for (std::size_t second = first + 1; second < std::size(kKnown); ++second) {
      const Environment both = Both(kKnown[first].make(1, 2), kKnown[second].make(2, 3));
      EXPECT_EQ(Expect(both, 1, 2).launcher, kKnown[first].name) << kKnown[second].name;
    }
    EXPECT_EQ(Expect(Both(kKnown[first].make(1, 2), Ours(2, 4)), 2, 4).launcher, kSmddprun);
    EXPECT_EQ(Expect(Both(kKnown[first].make(1, 2), Ours(0, 1)), 0, 1).launcher, kSmddprun);
  }
}

TEST(LaunchEnvironment, AnInnerLauncherOfSeveralCountsInsideAnOuterOfOne) {
  EXPECT_EQ(Expect(Both(OpenMpi(0, 1), Torchrun(2, 4)), 2, 4).launcher, "torchrun");
  EXPECT_EQ(Expect(Both(OpenMpi(1, 2), Torchrun(0, 1)), 1, 2).launcher, "Open MPI's mpirun");
  // Slurm starts others, and is not started by them.
  EXPECT_EQ(Expect(Both(Slurm(1, 2), Torchrun(0, 1)), 0, 1).launcher, "torchrun");
  EXPECT_EQ(Expect(Both(Slurm(0, 1), Torchrun(3, 4)), 3, 4).launcher, "torchrun");
  // Errors in Slurm's variables do not matter then.
  Expect(Both(Without(Slurm(1, 2), "SLURM_JOB_ID"), Torchrun(3, 4)), 3, 4);
}

// smddprun gives its ranks Open MPI's four variables, and torchrun's, too.
TEST(LaunchEnvironment, OpenMpisVariablesFromSmddprunAreNotALaunchOfOpenMpi) {
  const Environment copies = Without(OpenMpi(1, 2), "PMIX_NAMESPACE");
  const Launch rank = Expect(Both(Ours(1, 2), Both(copies, {{"SMDDP_JOB_ID", "id"}})), 1, 2);
  EXPECT_EQ(rank.launcher, kSmddprun);
  EXPECT_EQ(rank.run_id, "SMDDP_JOB_ID=id");
  // A child of the rank without SMDDP_*: another launcher that started it counts.
  EXPECT_EQ(Expect(Both(copies, Hydra(0, 3)), 0, 3).launcher, "the mpiexec of MPICH or Intel MPI");
  EXPECT_EQ(Expect(Both(copies, Torchrun(2, 4)), 2, 4).launcher, "torchrun");
  EXPECT_EQ(Expect(Both(copies, Slurm(0, 1)), 0, 1).launcher, "Slurm's srun");
  EXPECT_EQ(Expect(OpenMpi(0, 3), 0, 3).launcher, "Open MPI's mpirun");
  // Without one it would wait for a rank 0 that does not exist.
  const Environment both_copies = Both(copies, Without(Torchrun(1, 2), "TORCHELASTIC_RUN_ID"));
  for (const Environment& left : {copies, both_copies}) {
    ExpectLaunchError(left, "OMPI_COMM_WORLD_RANK=1 and OMPI_COMM_WORLD_SIZE=2 are set, but no variable");
  }
  EXPECT_EQ(Expect(Both(both_copies, Slurm(0, 1)), 0, 1).launcher, "Slurm's srun");
  Expect(Without(OpenMpi(0, 1), "PMIX_NAMESPACE"), 0, 1);
  // Where a wrapper passes on only the four, the user names the run.
  Expect(Both(copies, {{"SMDDP_JOB_ID", "mine"}}), 1, 2);
}

TEST(LaunchEnvironment, TheShellOfSbatchOrSallocIsOneProcess) {
  Expect({{"SLURM_NTASKS", "4"}, {"SLURM_PROCID", "0"}, {"SLURM_JOB_ID", "12"}, {"SLURM_LOCALID", "0"}}, 0,
         1);
  Expect(Both(Slurm(0, 1), {{"SLURM_STEP_ID", "4294967290"}, {"SLURM_NTASKS", "4"}}), 0, 1);
  // Submitted from a step of two tasks: its variables are left over.
  Expect(Both(Slurm(0, 2), {{"SLURM_GTIDS", "0"}}), 0, 1);
  Expect(Both(Slurm(1, 2), {{"SLURM_GTIDS", "0,1"}}), 1, 2);
}

TEST(LaunchEnvironment, PmiAloneCountsOnlyWhenNothingElseDoes) {
  const Environment alone = {{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}};
  EXPECT_EQ(Expect(alone, 1, 2).launcher, "a launcher with a PMI server");
  // srun --mpi=pmi2 sets both.
  EXPECT_EQ(Expect(Both(alone, Slurm(1, 2)), 1, 2).launcher, "Slurm's srun");
  // conda's leftovers.
  EXPECT_EQ(Expect(Both({{"PMI_RANK", "0"}, {"PMI_SIZE", "1"}}, Slurm(1, 2)), 1, 2).launcher, "Slurm's srun");
  EXPECT_EQ(Expect({{"PMI_RANK", "0"}}, 0, 1).launcher, "");
  EXPECT_EQ(Expect({{"PMI_SIZE", "4"}, {"PMI_FD", "7"}}, 0, 1).launcher, "");
  ExpectLaunchError({{"PMI_RANK", "x"}, {"PMI_SIZE", "2"}}, "PMI_RANK='x'");
}

TEST(LaunchEnvironment, SageMakersAndKubernetesVariablesAreIgnored) {
  Expect({{"SM_HOSTS", "[\"algo-1\",\"algo-2\"]"}, {"SM_CURRENT_HOST", "algo-2"}, {"SM_NUM_GPUS", "8"}}, 0,
         1);
  Expect({{"JOB_COMPLETION_INDEX", "3"}}, 0, 1);
}

TEST(LaunchEnvironment, VariablesThatAreNotEnoughAreNoted) {
  EXPECT_NE(Expect({{"RANK", "1"}, {"WORLD_SIZE", "2"}}, 0, 1).note.find("LOCAL_WORLD_SIZE"),
            std::string::npos);
  EXPECT_NE(Expect({{"PMIX_RANK", "1"}}, 0, 1).note.find("PMIX_RANK"), std::string::npos);
  EXPECT_EQ(Expect(Both(Slurm(1, 2), {{"PMIX_RANK", "1"}}), 1, 2).note, "");
  EXPECT_EQ(Expect({{"RANK", "1"}}, 0, 1).note, "");
}

TEST(LaunchEnvironment, OurRankAndSizeStandTogether) {
  ExpectLaunchError({{"SMDDP_RANK", "0"}}, "SMDDP_RANK is set but SMDDP_SIZE is not");
  ExpectLaunchError({{"SMDDP_SIZE", "2"}}, "SMDDP_SIZE is set but SMDDP_RANK is not");
  ExpectLaunchError(Both(OpenMpi(0, 2), {{"SMDDP_RANK", "0"}}), "SMDDP_SIZE is not");
  ExpectLaunchError({{"SMDDP_RANK", ""}, {"SMDDP_SIZE", "2"}}, "SMDDP_RANK=''");
  ExpectLaunchError({{"SMDDP_RANK", "2"}, {"SMDDP_SIZE", "2"}}, "SMDDP_RANK=2 is outside [0, 1]");
  // A launcher's variables that are broken do not matter below ours.
  Expect(Both(Without(OpenMpi(0, 3), "OMPI_COMM_WORLD_SIZE"), Ours(1, 2)), 1, 2);
}

TEST(LaunchEnvironment, OurLocalVariablesOverrideOneByOne) {
  const Environment remote = Both(OpenMpi(1, 2), {{"OMPI_COMM_WORLD_LOCAL_RANK", "0"}});
  ExpectLaunchError(remote, "differs from OMPI_COMM_WORLD_RANK=1, though all 2 ranks are on one host");
  Expect(Both(remote, {{"SMDDP_LOCAL_RANK", "1"}}), 1, 2);
  ExpectLaunchError(Both(OpenMpi(1, 2), {{"SMDDP_LOCAL_SIZE", "1"}}), "outside");
  ExpectLaunchError(Both(OpenMpi(1, 2), {{"SMDDP_LOCAL_RANK", "x"}}), "SMDDP_LOCAL_RANK='x'");
  ExpectLaunchError({{"SMDDP_LOCAL_RANK", "1"}}, "SMDDP_LOCAL_RANK=1 is outside [0, 0]");
}

TEST(LaunchEnvironment, WhatIdentifiesTheRun) {
  Launch launch = Expect(OpenMpi(1, 2), 1, 2);
  EXPECT_EQ(launch.run_id, "PMIX_NAMESPACE=557056001");
  EXPECT_TRUE(launch.rank_variables.empty());
  EXPECT_NE(Expect(Both(OpenMpi(1, 2), {{"OMPI_MCA_orte_precondition_transports", "6c-f1"}}), 1, 2).run_id,
            launch.run_id);

  launch = Expect(Slurm(1, 2), 1, 2);
  EXPECT_EQ(launch.run_id, "SLURM_JOB_ID=12 SLURM_STEP_ID=3");
  EXPECT_TRUE(launch.rank_variables.empty());
  EXPECT_EQ(Expect(Both(Slurm(1, 2), {{"SLURM_RESTART_COUNT", "1"}}), 1, 2).run_id,
            "SLURM_JOB_ID=12 SLURM_STEP_ID=3 SLURM_RESTART_COUNT=1");

  launch = Expect(Hydra(1, 2), 1, 2);
  EXPECT_EQ(launch.run_id, "");
  EXPECT_EQ(launch.rank_variables, (std::vector<std::string>{"PMI_RANK=1", "PMI_SIZE=2"}));
  launch = Expect(Both(Hydra(1, 2), {{"PMI_PORT", "host:4242"}}), 1, 2);
  EXPECT_EQ(launch.run_id, "PMI_PORT=host:4242");
  EXPECT_TRUE(launch.rank_variables.empty());

  // Two runs of torchrun may have all of this in common.
  launch = Expect(Torchrun(1, 2), 1, 2);
  EXPECT_EQ(launch.run_id, "TORCHELASTIC_RUN_ID=none MASTER_PORT=29500");
  EXPECT_EQ(
      launch.rank_variables,
      (std::vector<std::string>{"RANK=1", "WORLD_SIZE=2", "TORCHELASTIC_RUN_ID=none", "MASTER_PORT=29500"}));
  EXPECT_EQ(Expect(Horovodrun(1, 2), 1, 2).run_id, "HOROVOD_GLOO_RENDEZVOUS_PORT=41234");

  launch = Expect(Ours(1, 2), 1, 2);
  EXPECT_EQ(launch.run_id, "");
  EXPECT_TRUE(launch.rank_variables.empty());
}

TEST(LaunchEnvironment, TheRunIdIsTheSameOnAllRanks) {
  for (const Known& known : kKnown) {
    for (int rank = 1; rank < 4; ++rank) {
      EXPECT_EQ(Expect(known.make(rank, 4), rank, 4).run_id, Expect(known.make(0, 4), 0, 4).run_id)
          << known.name;
    }
  }
}

TEST(LaunchEnvironment, OurJobIdCountsMoreThanTheLaunchersIds) {
  for (const Known& known : kKnown) {
    const Launch launch = Expect(Both(known.make(1, 2), {{"SMDDP_JOB_ID", "mine"}}), 1, 2);
    EXPECT_EQ(launch.run_id, "SMDDP_JOB_ID=mine") << known.name;
    EXPECT_TRUE(launch.rank_variables.empty()) << known.name;
  }
}

TEST(LaunchEnvironment, CopiedVariablesTakeTheRunIdOfTheLauncherThatTheyWereCopiedFrom) {
  // export RANK=$SLURM_PROCID, … in a script under srun: the script's shell is each rank's own.
  const Environment copied = Without(Torchrun(1, 2), "TORCHELASTIC_RUN_ID");
  Launch launch = Expect(Both(copied, Slurm(1, 2)), 1, 2);
  EXPECT_EQ(launch.run_id, "SLURM_JOB_ID=12 SLURM_STEP_ID=3");
  EXPECT_TRUE(launch.rank_variables.empty());
  launch = Expect(Both(Ours(1, 2), OpenMpi(1, 2)), 1, 2);
  EXPECT_EQ(launch.run_id, "PMIX_NAMESPACE=557056001");
  // The outer launcher's id does not count if its rank or size differs, nor for torchrun inside another
  // launcher.
  EXPECT_EQ(Expect(Both(Ours(1, 2), OpenMpi(1, 3)), 1, 2).run_id, "");
  EXPECT_FALSE(Expect(Both(Torchrun(1, 2), Slurm(1, 2)), 1, 2).rank_variables.empty());
  EXPECT_FALSE(Expect(Both(copied, Slurm(0, 2)), 1, 2).rank_variables.empty());
}

TEST(SlurmTasksOnNode, EveryNodeOfAList) {
  const std::map<std::string, std::vector<int>> lists = {
      {"1", {1}},           {"16", {16}},   {"2(x3),1", {2, 2, 2, 1}},
      {"1,2,3", {1, 2, 3}}, {"4(x1)", {4}}, {"3,2(x2),1(x3),7", {3, 2, 2, 1, 1, 1, 7}},
      {"0,1", {0, 1}},
  };
  for (const auto& [text, tasks] : lists) {
    for (int node = 0; node < static_cast<int>(tasks.size()); ++node) {
      int found = -1;
      ASSERT_TRUE(SlurmTasksOnNode(text, node, &found).ok()) << text;
      EXPECT_EQ(found, tasks[node]) << text << " at " << node;
    }
    int found = -1;
    EXPECT_FALSE(SlurmTasksOnNode(text, static_cast<int>(tasks.size()), &found).ok()) << text;
    EXPECT_FALSE(SlurmTasksOnNode(text, -1, &found).ok()) << text;
  }
}

TEST(SlurmTasksOnNode, WhatIsNotSuchAListIsAnError) {
  for (const char* text : {"", ",", "1,", ",1", "x", "2(", "2(x", "2(x)", "2(x3", "2(x0)", "2x3", "2(x3)1",
                           "-1", "1 ", "2(3)", "1;2", "99999999999999999999", "1(x99999999999999999999)"}) {
    int found = -1;
    const Status status = SlurmTasksOnNode(text, 0, &found);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << text;
    EXPECT_NE(status.message().find(std::string("SLURM_STEP_TASKS_PER_NODE='") + text + "'"),
              std::string::npos);
  }
}

}  // namespace
}  // namespace tf_smddp

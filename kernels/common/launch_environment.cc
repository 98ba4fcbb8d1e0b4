#include "kernels/common/launch_environment.h"

#include <algorithm>
#include <cstring>

#include "kernels/common/launch_families.h"
#include "kernels/common/number_text.h"
#include "kernels/common/slurm_tasks.h"

namespace tf_smddp {
namespace {

// The values of a family, and the names of its variables for messages.
struct Reading {
  Launch launch;
  std::string rank_name = "SMDDP_RANK";
  std::string size_name = "SMDDP_SIZE";
  std::string local_rank_name = "SMDDP_LOCAL_RANK";
  std::string local_size_name = "SMDDP_LOCAL_SIZE";
  bool complete = false;
  bool has_process_manager = false;  // which MPI's library finds
};

// An empty value counts as not set: users set it to remove a variable.
const char* NonEmpty(const Lookup& lookup, const char* name) {
  const char* value = lookup(name);
  return value != nullptr && *value != '\0' ? value : nullptr;
}

void Append(const Lookup& lookup, const char* name, std::string* texts) {
  if (const char* value = NonEmpty(lookup, name)) {
    *texts += (texts->empty() ? "" : " ") + std::string(name) + "=" + value;
  }
}

Status Number(const Lookup& lookup, const char* name, const std::string& launcher, int* value) {
  Status status = ParseInt(name, NonEmpty(lookup, name), value);
  if (status.ok()) return status;
  return InvalidArgument(status.message() + "; it is a variable of " + launcher);
}

Status Missing(const std::string& launcher, const std::string& there, const std::string& missing) {
  return InvalidArgument(
      missing + " is not set though " + there + " is; " + launcher +
      " sets both: pass all its variables on to the script, or remove them all, or set SMDDP_RANK "
      "and SMDDP_SIZE yourself");
}

// Reads the four numbers and the ids of the run.
Status ReadNumbers(const Lookup& lookup, const Family& family, Reading* reading) {
  Launch& launch = reading->launch;
  launch.launcher = family.launcher;
  launch.mpi_kind = family.mpi_kind;
  reading->has_process_manager = family.mpi_kind != MpiKind::kUnknown;
  Status status = Number(lookup, family.rank, family.launcher, &launch.rank);
  if (status.ok()) status = Number(lookup, family.size, family.launcher, &launch.size);
  if (status.ok()) status = Number(lookup, family.local_rank, family.launcher, &launch.local_rank);
  if (status.ok()) status = Number(lookup, family.local_size, family.launcher, &launch.local_size);
  if (!status.ok()) return status;
  reading->rank_name = family.rank;
  reading->size_name = family.size;
  reading->local_rank_name = family.local_rank;
  reading->local_size_name = family.local_size;
  reading->complete = true;
  for (const char* name : family.run_ids) Append(lookup, name, &launch.run_id);
  if (family.run_ids_suffice && !launch.run_id.empty()) return {};
  for (const char* name : {family.rank, family.size}) {
    launch.rank_variables.push_back(std::string(name) + "=" + lookup(name));
  }
  for (const char* name : family.run_ids) {
    if (NonEmpty(lookup, name) != nullptr) {
      launch.rank_variables.push_back(std::string(name) + "=" + lookup(name));
    }
  }
  return {};
}

// Reads a family. If its variables are not set, the reading is incomplete, and there is no error.
Status ReadFamily(const Lookup& lookup, const Family& family, Reading* reading) {
  const char* there = nullptr;
  const char* missing = nullptr;
  for (const char* name : {family.rank, family.size}) {
    (NonEmpty(lookup, name) != nullptr ? there : missing) = name;
  }
  if (there == nullptr) return {};  // no launcher sets only the local ones
  for (const char* name : {family.local_rank, family.local_size}) {
    if (missing == nullptr && NonEmpty(lookup, name) == nullptr) missing = name;
  }
  if (missing == nullptr) return ReadNumbers(lookup, family, reading);
  return family.some_is_an_error ? Missing(family.launcher, there, missing) : Status();
}

Status ReadSlurm(const Lookup& lookup, Reading* reading) {
  // The shell of sbatch or salloc has SLURM_NTASKS and SLURM_PROCID, but is one process. Only a step has this
  // variable. An interactive shell is a step of one task.
  constexpr const char* kSize = "SLURM_STEP_NUM_TASKS";
  if (NonEmpty(lookup, kSize) == nullptr) return {};
  Launch& launch = reading->launch;
  launch.launcher = "Slurm's srun";
  // With --mpi=pmix, and with --mpi=pmi2, which MPICH's library knows; with --mpi=none it is neither.
  const bool pmix = NonEmpty(lookup, "PMIX_NAMESPACE") != nullptr;
  reading->has_process_manager = pmix || NonEmpty(lookup, "PMI_FD") != nullptr;
  launch.mpi_kind_is_sure = false;
  launch.mpi_kind = pmix ? MpiKind::kOpenMpi : MpiKind::kMpich;
  Status status = Number(lookup, kSize, launch.launcher, &launch.size);
  if (!status.ok()) return status;
  reading->rank_name = "SLURM_PROCID";
  reading->size_name = kSize;
  reading->local_rank_name = "SLURM_LOCALID";
  reading->local_size_name = "SLURM_STEP_TASKS_PER_NODE";
  reading->complete = true;
  if (launch.size == 1) return {};
  for (const char* name : {"SLURM_PROCID", "SLURM_LOCALID", "SLURM_NODEID", "SLURM_STEP_TASKS_PER_NODE",
                           "SLURM_JOB_ID", "SLURM_STEP_ID"}) {
    if (NonEmpty(lookup, name) == nullptr) return Missing(launch.launcher, kSize, name);
  }
  int node = 0;
  status = Number(lookup, "SLURM_PROCID", launch.launcher, &launch.rank);
  if (status.ok()) status = Number(lookup, "SLURM_LOCALID", launch.launcher, &launch.local_rank);
  if (status.ok()) status = Number(lookup, "SLURM_NODEID", launch.launcher, &node);
  if (status.ok()) {
    status = SlurmTasksOnNode(lookup("SLURM_STEP_TASKS_PER_NODE"), node, &launch.local_size);
  }
  if (!status.ok()) return status;
  // A batch script that was submitted from a task of a step inherits that step's variables. Slurm sets the
  // ids of the tasks on this node anew, and a batch script is one task.
  const char* ids = NonEmpty(lookup, "SLURM_GTIDS");
  if (ids != nullptr && 1 + std::count(ids, ids + std::strlen(ids), ',') != launch.local_size) {
    *reading = Reading();
    return {};
  }
  for (const char* name : kSlurmRunIds) Append(lookup, name, &launch.run_id);
  return {};
}

// Reads PMI_RANK and PMI_SIZE without Hydra's local variables. All ranks are assumed to be on this host.
Status ReadPmiAlone(const Lookup& lookup, Reading* reading) {
  if (NonEmpty(lookup, kHydra.rank) == nullptr || NonEmpty(lookup, kHydra.size) == nullptr) return {};
  Family one_host = kHydra;
  one_host.launcher = "a launcher with a PMI server";
  one_host.local_rank = one_host.rank;
  one_host.local_size = one_host.size;
  return ReadNumbers(lookup, one_host, reading);
}

// Reads our variables. Rank and size must be set together. The local ones have the same values by default.
Status ReadOurs(const Lookup& lookup, Reading* reading) {
  const char* rank = lookup("SMDDP_RANK");
  const char* size = lookup("SMDDP_SIZE");
  if (rank == nullptr && size == nullptr) return {};
  if (rank == nullptr || size == nullptr) {
    return InvalidArgument(std::string(rank != nullptr ? "SMDDP_RANK" : "SMDDP_SIZE") + " is set but " +
                           (rank != nullptr ? "SMDDP_SIZE" : "SMDDP_RANK") +
                           " is not; set both, or start the ranks with smddprun");
  }
  Launch& launch = reading->launch;
  launch.launcher = kSmddprun;
  Status status = ParseInt("SMDDP_RANK", rank, &launch.rank);
  if (status.ok()) status = ParseInt("SMDDP_SIZE", size, &launch.size);
  launch.local_rank = launch.rank;
  launch.local_size = launch.size;
  reading->complete = status.ok();
  return status;
}

// Applies those of our variables that override a launcher's one by one.
Status Override(const Lookup& lookup, Reading* reading) {
  Launch& launch = reading->launch;
  if (const char* text = lookup("SMDDP_LOCAL_RANK")) {
    Status status = ParseInt("SMDDP_LOCAL_RANK", text, &launch.local_rank);
    if (!status.ok()) return status;
    reading->local_rank_name = "SMDDP_LOCAL_RANK";
  }
  if (const char* text = lookup("SMDDP_LOCAL_SIZE")) {
    Status status = ParseInt("SMDDP_LOCAL_SIZE", text, &launch.local_size);
    if (!status.ok()) return status;
    reading->local_size_name = "SMDDP_LOCAL_SIZE";
  }
  if (NonEmpty(lookup, "SMDDP_JOB_ID") != nullptr) {
    launch.run_id.clear();
    launch.rank_variables.clear();
    Append(lookup, "SMDDP_JOB_ID", &launch.run_id);
  }
  return {};
}

Status CheckRange(const std::string& name, int value, int low, int high) {
  if (value >= low && value <= high) return {};
  return InvalidArgument(name + "=" + std::to_string(value) + " is outside [" + std::to_string(low) + ", " +
                         std::to_string(high) + "]");
}

Status Check(const Reading& reading) {
  const Launch& launch = reading.launch;
  const std::string local_size = reading.local_size_name;
  Status status = CheckRange(reading.size_name, launch.size, 1, kMaxRanks);
  if (status.ok()) status = CheckRange(reading.rank_name, launch.rank, 0, launch.size - 1);
  if (status.ok()) status = CheckRange(local_size, launch.local_size, 1, launch.size);
  if (status.ok()) status = CheckRange(reading.local_rank_name, launch.local_rank, 0, launch.local_size - 1);
  if (!status.ok() && !launch.launcher.empty()) {
    return InvalidArgument(status.message() + "; that is how " + launch.launcher + " started this process");
  }
  if (!status.ok()) return status;
  if (launch.local_size == launch.size && launch.local_rank != launch.rank) {
    return InvalidArgument(reading.local_rank_name + "=" + std::to_string(launch.local_rank) +
                           " differs from " + reading.rank_name + "=" + std::to_string(launch.rank) +
                           ", though all " + std::to_string(launch.size) + " ranks are on one host");
  }
  if (launch.local_size > kMaxLocalRanks) {
    return InvalidArgument(local_size + "=" + std::to_string(launch.local_size) + " is more than " +
                           std::to_string(kMaxLocalRanks) + ", the largest number of ranks on one host");
  }
  return {};
}

// Sees to a process manager for MPI, if the ranks are on several hosts and the launcher brings none.
Status AddProcessManager(const Lookup& lookup, Reading* reading) {
  Launch& launch = reading->launch;
  if (launch.local_size == launch.size || reading->has_process_manager) return {};
  launch.mpi_kind = MpiKind::kMpich;  // it has the protocol of MPICH's family
  launch.mpi_kind_is_sure = true;
  const Status status = ReadProcessManagerAddress(lookup, &launch.process_manager);
  if (status.ok()) return {};
  return InvalidArgument(reading->local_size_name + "=" + std::to_string(launch.local_size) + " of " +
                         reading->size_name + "=" + std::to_string(launch.size) +
                         ": the ranks are on several hosts, which MPI joins, and " + launch.launcher +
                         " brings no process manager for it: " + status.message() +
                         ", or start the job with mpirun or mpiexec");
}

void TakeMpi(const Reading& from, Reading* to) {
  to->launch.mpi_kind = from.launch.mpi_kind;
  to->launch.mpi_kind_is_sure = from.launch.mpi_kind_is_sure;
  to->has_process_manager = from.has_process_manager;
}

// Takes the run id and the MPI from another family with the same rank and size: a script may have set the
// variables of one launcher from those of another. torchrun itself is excluded, since it may run inside such
// a launcher.
void BorrowRun(const std::vector<Reading>& readings, const Lookup& lookup, Reading* reading) {
  Launch* const launch = &reading->launch;
  if (launch->size == 1 || NonEmpty(lookup, "TORCHELASTIC_RUN_ID") != nullptr) return;
  for (const Reading& other : readings) {
    const Launch& theirs = other.launch;
    if (theirs.rank != launch->rank || theirs.size != launch->size) continue;
    if (theirs.run_id.empty() || !theirs.rank_variables.empty()) continue;
    launch->run_id = theirs.run_id;
    launch->rank_variables.clear();
    TakeMpi(other, reading);
    return;
  }
}

// Returns a note for the user if variables are set that do not suffice.
std::string NoteAlone(const Lookup& lookup) {
  if (NonEmpty(lookup, "RANK") != nullptr && NonEmpty(lookup, "WORLD_SIZE") != nullptr) {
    return "RANK and WORLD_SIZE are set, but not LOCAL_RANK and LOCAL_WORLD_SIZE, which torchrun sets too: "
           "they are "
           "ignored, and this process is rank 0 of 1. Set SMDDP_RANK and SMDDP_SIZE if it is one of several";
  }
  if (NonEmpty(lookup, "PMIX_RANK") != nullptr) {
    return "PMIX_RANK is set, but nothing says how many ranks there are: this process is rank 0 of 1. Set "
           "SMDDP_RANK and "
           "SMDDP_SIZE if it is one of several";
  }
  return "";
}

// Returns whether Open MPI's variables do not come from mpirun, which always names its run as well. smddprun
// sets them for scripts that read them.
bool LacksItsRun(const Lookup& lookup, const Reading& reading) {
  return reading.launch.launcher == kOpenMpi.launcher && reading.launch.size > 1 &&
         reading.launch.run_id.empty() && NonEmpty(lookup, "SMDDP_JOB_ID") == nullptr;
}

// Returns whether torchrun's variables are those that smddprun sets beside Open MPI's.
bool AreOurs(const Lookup& lookup, const Reading& reading, const Reading& unnamed) {
  return reading.launch.launcher == kTorchrun.launcher && unnamed.complete &&
         reading.launch.rank == unnamed.launch.rank && reading.launch.size == unnamed.launch.size &&
         NonEmpty(lookup, "TORCHELASTIC_RUN_ID") == nullptr;
}

// Returns the error of a process that has only such variables.
Status UnnamedRun(const Launch& launch) {
  return InvalidArgument(
      "OMPI_COMM_WORLD_RANK=" + std::to_string(launch.rank) +
      " and OMPI_COMM_WORLD_SIZE=" + std::to_string(launch.size) +
      " are set, but no variable that names the run, such as mpirun's PMIX_NAMESPACE. In a rank of smddprun, "
      "which sets them too, remove OMPI_COMM_WORLD_*, RANK and WORLD_SIZE together with SMDDP_* from the "
      "environment of a process that runs alone. Under mpirun, pass PMIX_NAMESPACE on, or set SMDDP_JOB_ID "
      "to a text that is the same on all ranks and new for each run");
}

// Chooses among the families, in the order that the header gives.
Status Choose(const Lookup& lookup, Reading* chosen) {
  std::vector<Reading> complete;
  Reading unnamed;
  for (const Family* family : kFamilies) {
    Reading reading;
    const Status status = ReadFamily(lookup, *family, &reading);
    if (!status.ok()) return status;
    if (!reading.complete) continue;
    if (LacksItsRun(lookup, reading)) {
      unnamed = reading;
    } else if (!AreOurs(lookup, reading, unnamed)) {
      complete.push_back(reading);
    }
  }
  Reading slurm;
  Status status = ReadSlurm(lookup, &slurm);
  if (!complete.empty()) {
    *chosen = complete.front();
    for (auto reading = complete.rbegin(); reading != complete.rend(); ++reading) {
      if (reading->launch.size > 1) *chosen = *reading;
    }
    // Slurm started the chosen launcher, so errors in Slurm's variables do not matter.
    if (status.ok() && slurm.complete) complete.push_back(slurm);
    if (!chosen->launch.rank_variables.empty()) BorrowRun(complete, lookup, chosen);
    return {};
  }
  if (status.ok() && slurm.complete) *chosen = slurm;
  if (status.ok() && !slurm.complete) status = ReadPmiAlone(lookup, chosen);
  if (status.ok() && !chosen->complete && unnamed.complete) status = UnnamedRun(unnamed.launch);
  return status;
}

}  // namespace

Status ReadLaunch(const Lookup& lookup, Launch* launch) {
  Reading reading;
  Status status = ReadOurs(lookup, &reading);
  if (!status.ok()) return status;
  if (reading.complete) {
    // Another launcher's variables can only name the run and its MPI here, so errors in them do not matter.
    Reading other;
    if (Choose(lookup, &other).ok()) {
      BorrowRun({other}, lookup, &reading);
      TakeMpi(other, &reading);
    }
  } else {
    status = Choose(lookup, &reading);
    if (status.ok() && !reading.complete) reading.launch.note = NoteAlone(lookup);
  }
  if (status.ok()) status = Override(lookup, &reading);
  if (status.ok()) status = Check(reading);
  if (status.ok()) status = AddProcessManager(lookup, &reading);
  if (status.ok()) *launch = std::move(reading.launch);
  return status;
}

}  // namespace tf_smddp

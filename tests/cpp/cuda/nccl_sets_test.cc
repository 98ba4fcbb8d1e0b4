// Several process sets of a rank use NCCL. The stand-in ends the process when calls of two communicators are
// made in different orders on two devices, or when streams come to them so.
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/engine/watch/statistics.h"
#include "tests/cpp/cuda/compute.h"
#include "tests/cpp/cuda/nccl_ranks.h"
#include "tests/cpp/testing/ranks.h"

namespace tf_smddp::testing {
namespace {

constexpr std::size_t kShort = 3200;

std::uint64_t NcclFloats(Engine& engine) {
  EngineStats stats;
  ExpectOk(engine.Stats(/*reset=*/false, &stats));
  return stats.collectives[static_cast<std::size_t>(CollectiveKind::kAllreduce)].nccl_bytes / sizeof(float);
}

struct ProcessSet {
  CommunicatorId id = kWorld;
  std::vector<int> ranks;
  bool Has(int rank) const { return std::find(ranks.begin(), ranks.end(), rank) != ranks.end(); }
};

ProcessSet MakeSet(Engine& engine, const std::vector<int>& ranks) {
  ProcessSet set{kWorld, ranks};
  ExpectOk(engine.CreateCommunicator(ranks, &set.id));
  return set;
}

// The same by its members alone. Others do not know its number.
ProcessSet MakeSetAlone(Engine& engine, const std::vector<int>& ranks, std::uint64_t key) {
  ProcessSet set{kWorld, ranks};
  if (set.Has(engine.config().rank)) ExpectOk(engine.CreateCommunicatorAmong(ranks, key, &set.id));
  return set;
}

void Remove(Engine& engine, const ProcessSet& set) {
  if (set.id != kWorld) ExpectOk(engine.RemoveCommunicator(set.id));
}

// One thread's work in a set: groups of a few tensors, of which the next is begun when the one before has its
// results. In a group that is to fail, the last tensor of one rank is shorter.
class Worker {
 public:
  Worker(Engine& engine, const ProcessSet& set, unsigned seed)
      : engine_(engine), set_(set), rank_(engine.config().rank), compute_(rank_), random_(seed) {
    for (int i = 0; i < kTensors; ++i) tensors_.push_back(std::make_unique<Floats>(&compute_, kShort));
  }

  void Run(int groups) {
    for (int group = 0; group < groups; ++group) RunGroup(group, tensors_.back().get());
  }

  void RunAndFail(int groups) {
    Floats shorter(&compute_, kShort - 1);
    for (int group = 0; group < groups; ++group) {
      const int culprit = set_.ranks[static_cast<std::size_t>(group) % set_.ranks.size()];
      fails_ = group % 2 == 1;
      RunGroup(group, fails_ && rank_ == culprit ? &shorter : tensors_.back().get());
    }
  }

 private:
  static constexpr int kTensors = 5;

  void RunGroup(int group, Floats* last) {
    std::uint64_t ticket = 0;
    // Another rank may have found the failure before this one has begun.
    if (!engine_.DrawTicket(set_.id, kNoStep, &ticket).ok()) {
      EXPECT_TRUE(fails_);
      return;
    }
    std::vector<cuda::Order> orders(kTensors);
    std::vector<Request> requests;
    for (std::uint32_t i = 0; i < kTensors; ++i) {
      Floats* const tensor = i + 1 == kTensors ? last : tensors_[i].get();
      tensor->Set(static_cast<float>(group + static_cast<int>(i)));
      compute_.Mark(&orders[i]);
      requests.push_back(
          InGroup(Allreduce(*tensor, "in a set", &orders[i], &orders[i]), ticket, i, kTensors));
      requests.back().communicator = set_.id;
    }
    std::this_thread::sleep_for(std::chrono::microseconds(random_() % 500));
    const std::vector<Status> statuses = AwaitAll(engine_, std::move(requests));
    for (std::uint32_t i = 0; i < kTensors; ++i) {
      const Status written = Compute::AwaitWritten(orders[i]);
      if (!statuses[i].ok() || !written.ok()) {
        EXPECT_TRUE(fails_ && !statuses[i].ok()) << statuses[i].message() << written.message();
        continue;
      }
      const int sum = (group + static_cast<int>(i)) * static_cast<int>(set_.ranks.size());
      EXPECT_EQ(tensors_[i]->Read(), std::vector<float>(kShort, static_cast<float>(sum)));
    }
  }

  Engine& engine_;
  const ProcessSet set_;
  const int rank_;
  Compute compute_;
  std::mt19937 random_;
  bool fails_ = false;
  std::vector<std::unique_ptr<Floats>> tensors_;
};

void SmallBatches(int, Config* config) { config->bucket_cap_bytes = 2 * kShort * sizeof(float); }

class NcclSetsTest : public ::testing::TestWithParam<const char*> {
 protected:
  NcclSetsTest() { pretend_gpu_set_policy(GetParam()); }
  ~NcclSetsTest() override { pretend_gpu_set_policy("random"); }
};

INSTANTIATE_TEST_SUITE_P(Policies, NcclSetsTest,
                         ::testing::Values("prompt", "random", "compute=lazy,*=prompt",
                                           "compute=prompt,*=lazy", "lazy"));

// One thread uses one set after the other; sets come and go, made by all ranks and by their members. The set
// of one rank does without NCCL.
TEST_P(NcclSetsTest, ReduceOneAfterTheOther) {
  RunRanks(4, [](int rank, Engine& engine) {
    for (int round = 0; round < 3; ++round) {
      std::vector<ProcessSet> sets;
      for (const std::vector<int>& ranks : {std::vector<int>{0, 2}, {1, 3}, {0, 1, 2, 3}, {1, 2, 3}, {2}}) {
        sets.push_back(round == 0 ? MakeSet(engine, ranks)
                                  : MakeSetAlone(engine, ranks, 10 * round + sets.size()));
      }
      const std::uint64_t before = NcclFloats(engine);
      std::uint64_t groups = 0;
      for (int step = 0; step < 3; ++step) {
        for (const ProcessSet& set : sets) {
          if (!set.Has(rank)) continue;
          Worker(engine, set, 1).Run(1);
          if (set.ranks.size() > 1) ++groups;
        }
      }
      EXPECT_EQ(NcclFloats(engine) - before, groups * 5 * kShort);
      for (const ProcessSet& set : sets) Remove(engine, set);
    }
    Worker(engine, {kWorld, {0, 1, 2, 3}}, 1).Run(1);
  });
}

// A thread for each set, in no common order: two sets of all ranks, the world, and sets that overlap.
TEST_P(NcclSetsTest, ReduceAtTheSameTime) {
  RunRanks(
      4,
      [](int rank, Engine& engine) {
        std::vector<ProcessSet> sets{{kWorld, {0, 1, 2, 3}}};
        for (const std::vector<int>& ranks :
             {std::vector<int>{0, 1, 2, 3}, {0, 1, 2, 3}, {0, 1}, {1, 2}, {2, 3}, {0, 3}}) {
          sets.push_back(sets.size() % 2 == 0 ? MakeSet(engine, ranks)
                                              : MakeSetAlone(engine, ranks, sets.size()));
        }
        std::vector<std::thread> threads;
        for (const ProcessSet& set : sets) {
          if (!set.Has(rank)) continue;
          const unsigned seed = 100 * set.id + static_cast<unsigned>(rank);
          threads.emplace_back([&engine, set, seed] { Worker(engine, set, seed).Run(15); });
        }
        const std::uint64_t mine = threads.size();
        for (std::thread& thread : threads) thread.join();
        EXPECT_EQ(NcclFloats(engine), mine * 15 * 5 * kShort);
        for (const ProcessSet& set : sets) Remove(engine, set);
      },
      SmallBatches);
}

// The third host has no member of the set, and draws no turns for it.
TEST_P(NcclSetsTest, ASetOfTwoHostsOfThree) {
  const char* const hosts = std::getenv("TF_SMDDP_TEST_HOSTS");
  const std::string before = hosts == nullptr ? "1" : hosts;
  ASSERT_EQ(::setenv("TF_SMDDP_TEST_HOSTS", "3", 1), 0);
  RunRanks(
      3,
      [](int rank, Engine& engine) {
        const ProcessSet set = MakeSetAlone(engine, {0, 1}, 1);
        if (set.Has(rank)) Worker(engine, set, 1).Run(40);  // more batches than have turns at a time
        Worker(engine, {kWorld, {0, 1, 2}}, 1).Run(1);
      },
      SmallBatches);
  ASSERT_EQ(::setenv("TF_SMDDP_TEST_HOSTS", before.c_str(), 1), 0);
}

// A set starts, while on one rank the other set's call is on the stream and waits for its input.
TEST_P(NcclSetsTest, StartWhileAnotherWaitsForItsInput) {
  RunRanks(2, [](int rank, Engine& engine) {
    const ProcessSet started = MakeSet(engine, {0, 1}), other = MakeSet(engine, {0, 1});
    Worker(engine, started, 1).Run(1);
    Worker worker(engine, other, 1);
    Compute compute(rank);
    const Floats data(&compute, kShort);
    std::unique_ptr<Hold> hold;
    if (rank == 0) hold = std::make_unique<Hold>(compute.stream());
    compute.Mark();
    std::thread sums([&] {
      Request request = Allreduce(data, data);
      request.communicator = started.id;
      ExpectOk(Await(engine, std::move(request)));
    });
    std::this_thread::sleep_for(std::chrono::milliseconds(100));  // so that its turn is the first
    std::thread lets_go([&hold] {
      std::this_thread::sleep_for(std::chrono::milliseconds(300));
      if (hold != nullptr) hold->LetGo();
    });
    worker.Run(1);
    for (std::thread* const each : {&sums, &lets_go}) each->join();
    ExpectOk(compute.AwaitWritten());
  });
}

// Steps of one set fail, and its communicators of NCCL end, while the others go on.
TEST_P(NcclSetsTest, GoOnWhileStepsOfOneOfThemFail) {
  RunRanks(
      3,
      [](int rank, Engine& engine) {
        const ProcessSet failing = MakeSet(engine, {0, 1, 2}), all = MakeSet(engine, {0, 1, 2});
        const ProcessSet two = MakeSet(engine, {0, 1});
        std::vector<std::thread> threads;
        for (const ProcessSet& set : {failing, all, two}) {
          if (!set.Has(rank)) continue;
          const unsigned seed = 100 * set.id + static_cast<unsigned>(rank);
          threads.emplace_back([&engine, set, seed, fails = set.id == failing.id] {
            Worker worker(engine, set, seed);
            fails ? worker.RunAndFail(14) : worker.Run(20);
          });
        }
        for (std::thread& thread : threads) thread.join();
      },
      SmallBatches);
}

}  // namespace
}  // namespace tf_smddp::testing

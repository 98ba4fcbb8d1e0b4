// Ranks that leave a communicator: the others go on without them.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "tests/cpp/testing/matrix.h"
#include "tests/cpp/testing/ranks.h"
#include "tests/cpp/testing/sanitizers.h"
#include "tests/cpp/testing/step.h"
#include "tests/cpp/testing/trial.h"

namespace tf_smddp::testing {
namespace {

using std::chrono::milliseconds;

// A communicator of all ranks that ranks may leave; the world is for the end of the test.
CommunicatorId MakeCrowd(Engine& engine) {
  std::vector<int> ranks;
  for (int rank = 0; rank < engine.config().size; ++rank) ranks.push_back(rank);
  CommunicatorId id = kWorld;
  const Status status = engine.CreateCommunicator(ranks, &id);
  EXPECT_TRUE(status.ok()) << status.message();
  return id;
}

void MeetInTheWorld(Engine& engine) {
  const Status status = Await(
      engine, MakeRequest(CollectiveKind::kBarrier, DType::kUInt8, ReduceOp::kSum, nullptr, nullptr, 0));
  EXPECT_TRUE(status.ok()) << status.message();
}

// Reductions, gathers and scatters of those that are left; each in every layout, small and large.
std::vector<Trial> Trials(int size, unsigned salt) {
  std::vector<Trial> trials;
  for (const CollectiveKind kind :
       {CollectiveKind::kAllreduce, CollectiveKind::kBroadcast, CollectiveKind::kAllgather,
        CollectiveKind::kReducescatter, CollectiveKind::kBarrier}) {
    for (const std::int64_t count : {13, 20011}) {
      Trial trial;
      trial.kind = kind;
      trial.op = ReduceOp::kAverage;
      trial.root = size - 1;  // never leaves
      trial.rows = kind == CollectiveKind::kBarrier ? 0 : count;
      if (kind == CollectiveKind::kAllgather) trial.rows_of = Deal(count, size, 1, salt);
      trial.salt = ++salt;
      trial.placements = PlacementsOf(static_cast<Layout>(salt % kNumLayouts), size, salt);
      trials.push_back(trial);
    }
  }
  return trials;
}

std::vector<int> From(int first, int size) {
  std::vector<int> ranks;
  for (int rank = first; rank < size; ++rank) ranks.push_back(rank);
  return ranks;
}

// The ranks leave one after the other. In between, the others run a group with all kinds of collectives.
TEST(Leave, TheOthersGoOn) {
  for (const int size : {2, 3, 5}) {
    RunRanks(size, [size](int rank, Engine& engine) {
      const CommunicatorId id = MakeCrowd(engine);
      for (int left = 0; left < size; ++left) {
        const std::vector<Trial> trials = Trials(size, static_cast<unsigned>(100 * left));
        const std::uint64_t ticket = DrawTicket(engine, id);
        std::vector<std::unique_ptr<Attempt>> attempts;
        std::vector<Request> requests;
        for (std::size_t i = 0; i < trials.size(); ++i) {
          attempts.push_back(std::make_unique<Attempt>(engine, id, trials[i]));
          requests.push_back(InGroup(attempts[i]->MakeRequest(), ticket, static_cast<std::uint32_t>(i),
                                     static_cast<std::uint32_t>(trials.size())));
        }
        const std::vector<Status> statuses = AwaitAll(engine, std::move(requests));
        for (std::size_t i = 0; i < attempts.size(); ++i) {
          ASSERT_TRUE(attempts[i]->Check(statuses[i], From(left, size))) << left << " have left";
        }
        if (rank != left) {
          std::this_thread::sleep_for(
              milliseconds(left % 2 == 0 ? 5 : 0));  // a request that waits, or comes after
          continue;
        }
        const Status status = engine.Leave(id);
        EXPECT_TRUE(status.ok()) << status.message();
        break;
      }
      MeetInTheWorld(engine);
      EXPECT_TRUE(engine.RemoveCommunicator(id).ok());
    });
  }
}

TEST(Leave, WhatWaitedForTheLeaverBecomesReady) {
  RunRanks(3, [](int rank, Engine& engine) {
    const CommunicatorId id = MakeCrowd(engine);
    if (rank == 1) {
      std::this_thread::sleep_for(milliseconds(50));  // the others wait by now
      EXPECT_TRUE(engine.Leave(id).ok());
    } else {
      std::vector<std::vector<float>> data;
      std::vector<Request> requests;
      for (const std::size_t count : {3, 2000, 300000})
        data.emplace_back(count, static_cast<float>(rank + 1));
      for (auto& each : data) requests.push_back(AllreduceIn(id, &each, ReduceOp::kAverage));
      for (const Status& status : AwaitAll(engine, std::move(requests)))
        ASSERT_TRUE(status.ok()) << status.message();
      for (const auto& each : data) {
        for (const float value : each) ASSERT_EQ(value, 2.0f);  // of 1 and 3
      }
    }
    MeetInTheWorld(engine);
  });
}

// With 1 added to 1e8 and -1e8, the order of the additions decides whether the 1 remains. Between hosts,
// small tensors could go with the order of the requests (kernels/engine/hosts/relay_data.h).
TEST(Leave, SumsOfAnySizeAreAddedInTheOrderOfTheRanks) {
  RunRanks(4, [](int rank, Engine& engine) {
    const CommunicatorId id = MakeCrowd(engine);
    if (rank == 3) {
      ASSERT_TRUE(engine.Leave(id).ok());
    } else {
      for (const std::size_t count : {30, 3000, 300000}) {
        std::vector<float> sum(count, rank == 0 ? 1e8f : rank == 1 ? 1.0f : -1e8f);
        ASSERT_TRUE(Await(engine, AllreduceIn(id, &sum)).ok());
        for (const float value : sum) ASSERT_EQ(value, 0.0f) << count << " elements";
      }
    }
    MeetInTheWorld(engine);
  });
}

TEST(Leave, OwnRequestsAreWaitedForAndLaterOnesRefused) {
  RunRanks(2, [](int rank, Engine& engine) {
    const CommunicatorId id = MakeCrowd(engine);
    std::vector<float> data(100000, 1.0f);
    if (rank == 0) {
      std::promise<Status> outcome;
      Request request = AllreduceIn(id, &data);
      request.done = [&outcome](const Status& status) { outcome.set_value(status); };
      engine.Submit(std::move(request));
      ASSERT_TRUE(engine.Leave(id).ok());
      auto ended = outcome.get_future();
      ASSERT_TRUE(ended.get().ok());
      EXPECT_EQ(data[99999], 2.0f);
      const Status late = Await(engine, AllreduceIn(id, &data));
      EXPECT_EQ(late.code(), StatusCode::kFailedPrecondition);
      EXPECT_NE(late.message().find("rank 0 has left"), std::string::npos) << late.message();
      EXPECT_TRUE(engine.Leave(id).ok());  // again: nothing
      // A step that fails here is nothing to those that are left.
      engine.FailStep(id, kNoStep, "disk full");
    } else {
      std::this_thread::sleep_for(milliseconds(30));
      ASSERT_TRUE(Await(engine, AllreduceIn(id, &data)).ok());
      for (int round = 0; round < 20; ++round) {
        std::vector<float> own(round % 2 == 0 ? 3 : 5000, 7.0f);
        const Status status = Await(engine, AllreduceIn(id, &own));
        ASSERT_TRUE(status.ok()) << status.message();
        ASSERT_EQ(own[2], 7.0f);
        std::this_thread::sleep_for(milliseconds(2));
      }
    }
    MeetInTheWorld(engine);
  });
}

TEST(Leave, ACollectiveThatNeedsTheLeaverIsAnError) {
  RunRanks(3, [](int rank, Engine& engine) {
    const CommunicatorId id = MakeCrowd(engine);
    if (rank == 0) {
      EXPECT_TRUE(engine.Leave(id).ok());
      MeetInTheWorld(engine);
      MeetInTheWorld(engine);
      return;
    }
    MeetInTheWorld(engine);
    std::vector<float> data(10, 1.0f);
    Request broadcast = AllreduceIn(id, &data);
    broadcast.operation.kind = CollectiveKind::kBroadcast;
    broadcast.operation.root = RankId(0);
    Status status = Await(engine, broadcast);
    EXPECT_NE(status.message().find("the root has left"), std::string::npos) << status.message();
    Trial trial;
    trial.kind = CollectiveKind::kAlltoall;
    trial.splits = {{1, 1, 1}, {1, 1, 1}, {1, 1, 1}};
    Attempt attempt(engine, id, trial);
    status = Await(engine, attempt.MakeRequest());
    EXPECT_NE(status.message().find("has left the process set"), std::string::npos) << status.message();
    status = Await(engine, AllreduceIn(id, &data));
    EXPECT_TRUE(status.ok()) << status.message();
    MeetInTheWorld(engine);
  });
}

// Ranks leave at random moments of a stream of requests; those that are left all see the same results.
TEST(Leave, InAStreamOfRequests) {
  const int size = 4;
  for (unsigned round = 0; round < (kSanitized ? 4 : 25); ++round) {
    const int uses = 60;
    std::vector<std::vector<float>> sums(size, std::vector<float>(uses, 0.0f));
    RunRanks(size, [&](int rank, Engine& engine) {
      const CommunicatorId id = MakeCrowd(engine);
      std::mt19937 random(round * 8 + static_cast<unsigned>(rank));
      const int stays = rank == 0 ? uses : static_cast<int>(random() % uses);
      for (int use = 0; use < stays; ++use) {
        std::vector<float> data(use % 3 == 0 ? 3000 : 5, static_cast<float>(1 << (4 * rank)));
        const Status status = Await(engine, AllreduceIn(id, &data));
        ASSERT_TRUE(status.ok()) << status.message();
        for (const float value : data) ASSERT_EQ(value, data[0]);
        sums[static_cast<std::size_t>(rank)][static_cast<std::size_t>(use)] = data[0];
      }
      if (rank != 0) {
        ASSERT_TRUE(engine.Leave(id).ok());
      }
      MeetInTheWorld(engine);
    });
    for (int use = 0; use < uses; ++use) {
      const auto sum = static_cast<unsigned>(sums[0][static_cast<std::size_t>(use)]);
      unsigned expected = 0;
      for (int rank = 0; rank < size; ++rank) {
        const float own = sums[static_cast<std::size_t>(rank)][static_cast<std::size_t>(use)];
        if (own == 0.0f) continue;  // it had left
        EXPECT_EQ(own, static_cast<float>(sum)) << "use " << use << ", rank " << rank;
        expected |= 1u << (4 * rank);
      }
      EXPECT_EQ(sum, expected) << "use " << use;  // exactly those that took part
    }
  }
}

// Epochs: each rank has a random number of requests, then leaves; when all have left, all are back. Steps of
// those that are left fail in between.
TEST(Leave, AllReturn) {
  const int size = 4;
  for (unsigned round = 0; round < (kSanitized ? 3 : 20); ++round) {
    RunRanks(size, [&](int rank, Engine& engine) {
      const CommunicatorId id = round % 2 == 0 ? kWorld : MakeCrowd(engine);
      for (unsigned epoch = 0; epoch < 8; ++epoch) {
        std::mt19937 random(8 * round + epoch);
        std::vector<int> uses;
        for (int each = 0; each < size; ++each) uses.push_back(static_cast<int>(random() % 9));
        std::vector<bool> fails;  // of all that are there at that use
        for (int use = 0; use < 9; ++use) fails.push_back(random() % 5 == 0);
        const auto completed = [&](int each) {
          return std::count(fails.begin(), fails.begin() + uses[static_cast<std::size_t>(each)], false);
        };
        for (int use = 0; use < uses[static_cast<std::size_t>(rank)]; ++use) {
          std::vector<int> there;
          for (int each = 0; each < size; ++each) {
            if (uses[static_cast<std::size_t>(each)] > use) there.push_back(each);
          }
          std::vector<float> data(use % 3 == 0 ? 3000 : 5, static_cast<float>(rank + 1));
          float sum = 0;
          for (const int each : there) sum += static_cast<float>(each + 1);
          Step step(engine);
          const bool ok = !fails[static_cast<std::size_t>(use)];
          if (!ok && rank == there.back()) step.Fail("disk full", {id});
          step.Submit(AllreduceIn(id, &data, ReduceOp::kAverage));
          ASSERT_EQ(step.End().ok(), ok) << step.End().message();
          if (ok) {
            ASSERT_EQ(data[4], sum / static_cast<float>(there.size())) << "use " << use;
          }
        }
        ASSERT_TRUE(engine.Leave(id).ok());
        RankId last;
        const Status status = engine.Return(id, &last);
        ASSERT_TRUE(status.ok()) << status.message();
        for (int each = 0; each < size; ++each) ASSERT_GE(completed(last.value()), completed(each));
      }
      std::vector<float> data(5, 1.0f);
      ASSERT_TRUE(Await(engine, AllreduceIn(id, &data)).ok());
      EXPECT_EQ(data[0], static_cast<float>(size));
    });
  }
}

TEST(Leave, ReturnWithoutHavingLeftIsAnError) {
  RunRanks(2, [](int, Engine& engine) {
    RankId last;
    const Status status = engine.Return(kWorld, &last);
    EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
    EXPECT_NE(status.message().find("has not left"), std::string::npos) << status.message();
    // Nor is it right a second time.
    ASSERT_TRUE(engine.Leave(kWorld).ok());
    EXPECT_TRUE(engine.Return(kWorld, &last).ok());
    EXPECT_EQ(engine.Return(kWorld, &last).code(), StatusCode::kFailedPrecondition);
  });
}

// A thread that waits for the others keeps a process set alive, and a job.
TEST(Leave, AWaitEndsWhenAnotherThreadRemovesTheProcessSet) {
  RunRanks(2, [](int rank, Engine& engine) {
    const CommunicatorId id = MakeCrowd(engine);
    std::thread waits;
    Status status;
    if (rank == 0) {
      ASSERT_TRUE(engine.Leave(id).ok());
      waits = std::thread([&] {
        RankId last;
        status = engine.Return(id, &last);
      });
    }
    EXPECT_TRUE(engine.RemoveCommunicator(id).ok());
    if (rank != 0) return;
    waits.join();
    EXPECT_FALSE(status.ok());  // it may not have begun to wait
  });
}

TEST(Leave, ShutdownEndsALeaveThatWaitsForARequest) {
  std::atomic<bool> over{false};
  const auto body = [&over](int rank, Engine& engine) {
    if (rank == 1) {  // it never brings its part
      while (!over.load()) std::this_thread::sleep_for(milliseconds(1));
      return;
    }
    std::vector<float> data(10, 1.0f);
    Request request = AllreduceIn(kWorld, &data);
    std::promise<void> ended;
    request.done = [&ended](const Status&) { ended.set_value(); };
    engine.Submit(std::move(request));
    std::thread leaves([&engine] {
      const Status status = engine.Leave(kWorld);
      EXPECT_NE(status.message().find("called shutdown() while it waited in join()"), std::string::npos)
          << status.message();
    });
    std::this_thread::sleep_for(milliseconds(50));
    engine.Shutdown();
    leaves.join();
    ended.get_future().get();
    over.store(true);
  };
  RunRanks(2, body, {}, /*orderly=*/false);
}

TEST(Leave, ARankThatShutsDownInsteadEndsTheWait) {
  const auto body = [](int rank, Engine& engine) {
    if (rank == 2) {
      std::this_thread::sleep_for(milliseconds(20));
      return;
    }
    ASSERT_TRUE(engine.Leave(kWorld).ok());
    RankId last;
    const Status status = engine.Return(kWorld, &last);
    EXPECT_NE(status.message().find(", but join() on rank"), std::string::npos) << status.message();
  };
  RunRanks(3, body, {}, /*orderly=*/false);
}

// Failures and departures in one communicator.
TEST(Leave, WhileStepsFail) {
  const int size = 4;
  for (unsigned round = 0; round < (kSanitized ? 4 : 25); ++round) {
    RunRanks(size, [&](int rank, Engine& engine) {
      const CommunicatorId id = MakeCrowd(engine);
      const int leaves = 3 + 4 * rank;  // attempt after which this rank leaves
      for (int attempt = 0; attempt < 20; ++attempt) {
        if (attempt == leaves) {
          const Status status = engine.Leave(id);
          ASSERT_TRUE(status.ok()) << status.message();
          break;
        }
        const int left = attempt < 3 ? 0 : (attempt - 3) / 4 + 1;  // before this attempt
        const bool fails = attempt % 2 == 1;
        std::vector<float> data(attempt % 3 == 0 ? 3000 : 5, 1.0f);
        Step step(engine);
        if (fails && rank == left + (attempt + static_cast<int>(round)) % (size - left)) {
          step.Fail("disk full", {id});
        }
        step.Submit(AllreduceIn(id, &data));
        ASSERT_EQ(step.End().ok(), !fails)
            << "rank " << rank << ", attempt " << attempt << ": " << step.End().message();
      }
      MeetInTheWorld(engine);
    });
  }
}

TEST(Leave, TheWorld) {
  RunRanks(3, [](int rank, Engine& engine) {
    std::vector<float> data(5000, 1.0f);
    if (rank == 2) {
      EXPECT_TRUE(engine.Leave(kWorld).ok());
      return;
    }
    std::this_thread::sleep_for(milliseconds(20));
    const Status status = Await(engine, AllreduceIn(kWorld, &data));
    ASSERT_TRUE(status.ok()) << status.message();
    EXPECT_EQ(data[0], 2.0f);
  });
}

}  // namespace
}  // namespace tf_smddp::testing

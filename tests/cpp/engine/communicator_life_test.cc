// Communicators that are made and removed while something else happens: other threads, failures, late calls.
#include <sys/syscall.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <future>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/engine/watch/statistics.h"
#include "tests/cpp/testing/meeting.h"
#include "tests/cpp/testing/ranks.h"
#include "tests/cpp/testing/sanitizers.h"
#include "tests/cpp/testing/step.h"
#include "tests/cpp/testing/usage.h"

namespace tf_smddp::testing {
namespace {

using std::chrono::milliseconds;

// A sum over both of two ranks, small or large.
void ExpectSum(Engine& engine, CommunicatorId id, std::size_t count) {
  std::vector<float> data(count, 1.0f);
  const Status status = Await(engine, AllreduceIn(id, &data));
  ASSERT_TRUE(status.ok()) << status.message();
  ASSERT_EQ(data.front(), 2.0f);
  ASSERT_EQ(data.back(), 2.0f);
}

// A step that fails on both of two ranks, since they disagree about a shape.
void FailAStep(Engine& engine, CommunicatorId id) {
  std::vector<float> data(engine.config().rank == 0 ? 4 : 5, 1.0f);
  EXPECT_FALSE(Await(engine, AllreduceIn(id, &data)).ok());
}

// They are made by all ranks and by their members in turn.
TEST(CommunicatorLife, AThousandOneAfterTheOtherLeaveNothing) {
  const int rounds = kSanitized ? 200 : 1000;
  Meeting meeting(2);
  RunRanks(2, [&](int rank, Engine& engine) {
    Usage before;
    for (int round = 0; round < rounds; ++round) {
      CommunicatorId id = kWorld;
      if (round % 2 == 0) {
        ASSERT_TRUE(engine.CreateCommunicator({0, 1}, &id).ok());
        EXPECT_EQ(id, static_cast<CommunicatorId>(round) / 2 + 1);  // never one that a graph may still hold
      } else {
        ASSERT_TRUE(engine.CreateCommunicatorAmong({0, 1}, static_cast<std::uint64_t>(round), &id).ok());
      }
      ASSERT_NO_FATAL_FAILURE(ExpectSum(engine, id, round % 3 == 0 ? 4 : 4000));
      if (round % 5 == 0) FailAStep(engine, id);
      ASSERT_TRUE(engine.RemoveCommunicator(id).ok());
      meeting.Await();
      if (rank == 0 && round == rounds / 2) before = ReadUsage();
      meeting.Await();
    }
    if (rank != 0) return;
    const Usage after = ReadUsage();
    EXPECT_LE(after.descriptors, before.descriptors);
    EXPECT_LE(after.threads, before.threads);
    EXPECT_LE(after.shared_mappings, before.shared_mappings);
    if (!kSanitized) {
      EXPECT_LT(after.resident_bytes, before.resident_bytes + (4 << 20));
    }
  });
}

TEST(CommunicatorLife, AFailedOneKeepsNoArenaMemory) {
  RunRanks(2, [](int, Engine& engine) {
    EngineStats stats;
    for (int round = 0; round < 200; ++round) {
      CommunicatorId id = kWorld;
      ASSERT_TRUE(engine.CreateCommunicator({0, 1}, &id).ok());
      FailAStep(engine, id);
      ASSERT_TRUE(engine.RemoveCommunicator(id).ok());
      ASSERT_NO_FATAL_FAILURE(ExpectSum(engine, kWorld, 16));
    }
    ASSERT_TRUE(engine.Stats(/*reset=*/false, &stats).ok());
    EXPECT_EQ(stats.arena_used_bytes, 0u);
  });
}

TEST(CommunicatorLife, ARequestThatComesDuringTheRemovalEnds) {
  Meeting meeting(2);
  RunRanks(2, [&](int rank, Engine& engine) {
    CommunicatorId id = kWorld;
    ASSERT_TRUE(engine.CreateCommunicator({0, 1}, &id).ok());
    std::vector<float> data(4, 1.0f);
    std::promise<Status> outcome;
    std::thread remover;
    if (rank == 0) {
      remover = std::thread([&] { EXPECT_TRUE(engine.RemoveCommunicator(id).ok()); });
      std::this_thread::sleep_for(milliseconds(50));  // it waits for rank 1
      Request request = AllreduceIn(id, &data);
      request.done = [&](const Status& status) { outcome.set_value(status); };
      engine.Submit(std::move(request));
    }
    meeting.Await();
    if (rank == 1) {
      EXPECT_TRUE(engine.RemoveCommunicator(id).ok());
      return;
    }
    const Status status = outcome.get_future().get();
    EXPECT_NE(status.message().find("removed meanwhile"), std::string::npos) << status.message();
    remover.join();
    EXPECT_NE(Await(engine, AllreduceIn(id, &data)).message().find("no process set"), std::string::npos);
  });
}

// Two threads of each rank make one each, the same on all ranks.
TEST(CommunicatorLife, TwoThreadsMakeAndRemoveTheirs) {
  RunRanks(2, [](int, Engine& engine) {
    CommunicatorId ids[2] = {kWorld, kWorld};
    std::vector<std::thread> threads;
    for (CommunicatorId& id : ids) {
      threads.emplace_back([&engine, &id] {
        const Status status = engine.CreateCommunicator({0, 1}, &id);
        EXPECT_TRUE(status.ok()) << status.message();
      });
    }
    for (std::thread& thread : threads) thread.join();
    std::sort(std::begin(ids), std::end(ids));
    EXPECT_EQ(ids[0], 1u);
    EXPECT_EQ(ids[1], 2u);
    for (const CommunicatorId id : ids) {
      ASSERT_NO_FATAL_FAILURE(ExpectSum(engine, id, 4));
      EXPECT_TRUE(engine.RemoveCommunicator(id).ok());
    }
  });
}

// Calls that find the communicator for a moment, as the ends of steps and Ctrl-C do.
TEST(CommunicatorLife, LateCallsDisturbNothing) {
  RunRanks(2, [](int, Engine& engine) {
    std::atomic<CommunicatorId> current{1};
    std::atomic<bool> over{false};
    std::vector<std::thread> users;
    for (int i = 0; i < 2; ++i) {
      users.emplace_back([&] {
        while (!over) {
          const CommunicatorId id = current;
          engine.Cancel(std::uint64_t{id} << 40 | 999999, "late");
          engine.EndGroup(id, 12345, /*failed=*/false, "late");
          std::this_thread::yield();
        }
      });
    }
    for (int round = 0; round < 100 && !::testing::Test::HasFailure(); ++round) {
      CommunicatorId id = kWorld;
      const Status status = engine.CreateCommunicator({0, 1}, &id);
      EXPECT_TRUE(status.ok()) << status.message();
      if (!status.ok()) break;
      current = id;
      if (round % 2 == 0) FailAStep(engine, id);
      for (int i = 0; i < 1 + round % 7; ++i) ExpectSum(engine, id, i % 2 == 0 ? 10 : 2000);
      EXPECT_TRUE(engine.RemoveCommunicator(id).ok());
    }
    over = true;
    for (std::thread& user : users) user.join();
  });
}

// Whatever the moment at which a step of the world fails, the ranks agree on what there is, and it works.
TEST(CommunicatorLife, MakingAndRemovingWhileTheWorldFails) {
  RunRanks(2, [](int rank, Engine& engine) {
    for (int round = 0; round < (kSanitized ? 50 : 300) && !::testing::Test::HasFailure(); ++round) {
      std::thread interrupter;
      if (rank == 1) {
        interrupter = std::thread([&engine, round] {
          std::this_thread::sleep_for(std::chrono::microseconds(round * 7 % 500));
          engine.CancelAll("interrupted");
        });
      }
      CommunicatorId id = kWorld;
      while (!engine.CreateCommunicator({0, 1}, &id).ok()) EXPECT_EQ(id, kWorld);
      EXPECT_EQ(id, static_cast<CommunicatorId>(round) + 1);
      while (!engine.RemoveCommunicator(id).ok() && !engine.RanksOf(id).empty()) continue;
      if (interrupter.joinable()) interrupter.join();
      // The failure may come only now.
      std::vector<float> data(1, 1.0f);
      while (!Await(engine, AllreduceIn(kWorld, &data)).ok()) data[0] = 1.0f;
      EXPECT_EQ(data[0], 2.0f);
    }
  });
}

TEST(CommunicatorLife, NoneAreMadeOrRemovedOnceARankHasLeftTheWorld) {
  Meeting meeting(3);
  RunRanks(3, [&](int rank, Engine& engine) {
    CommunicatorId id = kWorld, none = kWorld;
    ASSERT_TRUE(engine.CreateCommunicator({0, 1, 2}, &id).ok());
    if (rank == 2) {
      ASSERT_TRUE(engine.Leave(kWorld).ok());
    }
    meeting.Await();
    for (const Status& status : {engine.CreateCommunicator({0, 1}, &none), engine.RemoveCommunicator(id)}) {
      EXPECT_NE(status.message().find("rank 2 left the set of all ranks"), std::string::npos)
          << status.message();
    }
    std::vector<float> data(4, 1.0f);
    EXPECT_TRUE(Await(engine, AllreduceIn(id, &data)).ok());
    EXPECT_EQ(data[0], 3.0f);
  });
}

TEST(CommunicatorLife, ShutdownDoesNotWaitForAnotherThreadsCreation) {
  for (const bool alone : {false, true}) {
    Meeting meeting(2);
    RunRanks(
        2,
        [&](int rank, Engine& engine) {
          meeting.Await();  // all threads of both are there
          if (rank == 0) {
            const int threads = ReadUsage().threads;
            std::thread creator([&engine, alone] {
              CommunicatorId id = kWorld;
              EXPECT_FALSE((alone ? engine.CreateCommunicatorAmong({0, 1}, 1, &id)
                                  : engine.CreateCommunicator({0, 1}, &id))
                               .ok());
            });
            // It is inside when it has started a thread for the new one.
            while (ReadUsage().threads < threads + 2) std::this_thread::sleep_for(milliseconds(1));
            const auto begin = std::chrono::steady_clock::now();
            EXPECT_NE(engine.Shutdown().message().find("was waiting for other ranks"), std::string::npos);
            EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(5));
            creator.join();
          }
          meeting.Await();
        },
        {}, /*orderly=*/false);
  }
}

TEST(CommunicatorLife, AMemberThatHasShutDownIsNamed) {
  RunRanks(
      2,
      [](int rank, Engine& engine) {
        if (rank == 1) return;
        CommunicatorId id = kWorld;
        const Status status = engine.CreateCommunicatorAmong({0, 1}, 1, &id);
        EXPECT_NE(status.message().find("rank 1 called shutdown()"), std::string::npos) << status.message();
      },
      {}, /*orderly=*/false);
}

}  // namespace
}  // namespace tf_smddp::testing

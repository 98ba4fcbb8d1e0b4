// Tests the figures of Engine::Stats.
#include "kernels/engine/watch/statistics.h"

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <future>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/memory/arena.h"
#include "tests/cpp/testing/comma_locale.h"
#include "tests/cpp/testing/meeting.h"
#include "tests/cpp/testing/ranks.h"

namespace tf_smddp::testing {
namespace {

constexpr std::int64_t kLargeCount = 300'000;  // elements; several chunks

EngineStats StatsOf(Engine& engine, bool reset = false) {
  EngineStats stats;
  const Status status = engine.Stats(reset, &stats);
  EXPECT_TRUE(status.ok()) << status.message();
  return stats;
}

const CollectiveStats& Of(const StatsByKind& kinds, CollectiveKind kind) {
  return kinds[static_cast<std::size_t>(kind)];
}

Status Allreduce(Engine& engine, std::int64_t count, CommunicatorId communicator = kWorld) {
  std::vector<float> data(static_cast<std::size_t>(count), 1.0f), output(data.size());
  Request request = AllreduceFloats(data, &output);
  request.communicator = communicator;
  return Await(engine, std::move(request));
}

Status Barrier(Engine& engine) {
  return Await(engine,
               MakeRequest(CollectiveKind::kBarrier, DType::kUInt8, ReduceOp::kSum, nullptr, nullptr, 0));
}

TEST(Statistics, CallsAndBytes) {
  RunRanks(3, [](int rank, Engine& engine) {
    for (int i = 0; i < 5; ++i) ASSERT_TRUE(Allreduce(engine, 1).ok());
    for (int i = 0; i < 2; ++i) ASSERT_TRUE(Allreduce(engine, kLargeCount).ok());
    ASSERT_TRUE(Barrier(engine).ok());
    const EngineStats stats = StatsOf(engine);
    EXPECT_EQ(stats.rank, rank);
    EXPECT_EQ(stats.size, 3);
    EXPECT_EQ(stats.arena_bytes, 32u << 20);
    EXPECT_EQ(stats.arena_used_bytes, 0u);
    const CollectiveStats& allreduce = Of(stats.collectives, CollectiveKind::kAllreduce);
    EXPECT_EQ(allreduce.calls, 7u);
    EXPECT_EQ(allreduce.errors, 0u);
    EXPECT_EQ(allreduce.bytes, 5 * 4 + 2 * 4 * static_cast<std::uint64_t>(kLargeCount));
    EXPECT_EQ(allreduce.small_calls, 5u);
    EXPECT_EQ(allreduce.staged_bytes, 2 * 4 * static_cast<std::uint64_t>(kLargeCount));
    EXPECT_GT(allreduce.moving_seconds, 0);
    EXPECT_GT(allreduce.waiting_seconds, 0);
    const CollectiveStats& barrier = Of(stats.collectives, CollectiveKind::kBarrier);
    EXPECT_EQ(barrier.calls, 1u);
    EXPECT_EQ(barrier.bytes, 0u);
    EXPECT_EQ(Of(stats.collectives, CollectiveKind::kBroadcast).calls, 0u);

    ASSERT_EQ(stats.communicators.size(), 1u);
    const CommunicatorStats& world = stats.communicators[0];
    EXPECT_EQ(world.id, kWorld);
    EXPECT_EQ(world.ranks, (std::vector<int>{0, 1, 2}));
    EXPECT_EQ(world.batches, 2u);
    EXPECT_EQ(world.batch_bytes, 2 * 4 * static_cast<std::uint64_t>(kLargeCount));
    EXPECT_EQ(world.deferred, 0u);
    EXPECT_EQ(world.failures, 0u);
  });
}

TEST(Statistics, WaitingAndMovingAreToldApart) {
  constexpr double kLate = 0.2;
  constexpr int kRounds = 4;
  const auto seconds = [](Clock::duration time) { return std::chrono::duration<double>(time).count(); };
  Meeting meeting(2);
  Clock::time_point late_call;  // rank 1's, in the round that is on
  RunRanks(2, [&](int rank, Engine& engine) {
    for (const std::int64_t count : {std::int64_t{1}, kLargeCount}) {
      double least_waiting = 1e9, least_excess = 1e9;
      for (int round = 0; round < kRounds; ++round) {
        std::vector<float> data(static_cast<std::size_t>(count), 1.0f), output(data.size());
        Request request = AllreduceFloats(data, &output);
        request.caller_progresses = round % 2 == 1;
        std::atomic<bool> ended{false};
        std::promise<Status> outcome;
        request.done = [&](const Status& status) {
          ended = true;
          outcome.set_value(status);
        };
        StatsOf(engine, /*reset=*/true);
        // Rank 1 comes kLate after rank 0's submission.
        if (rank == 1) {
          meeting.Await();
          std::this_thread::sleep_for(std::chrono::duration<double>(kLate));
        }
        const Clock::time_point begin = Clock::now();
        if (rank == 1) late_call = begin;
        const auto submit = [&] {
          engine.Submit(std::move(request));
          if (rank == 0) meeting.Await();
        };
        round % 2 == 1 ? engine.SubmitAndProgress(kWorld, Caller::kBlocking, submit, ended) : submit();
        const Status status = outcome.get_future().get();
        const Clock::time_point end = Clock::now();
        ASSERT_TRUE(status.ok()) << status.message();
        const CollectiveStats allreduce = Of(StatsOf(engine).collectives, CollectiveKind::kAllreduce);
        EXPECT_EQ(allreduce.calls, 1u);
        EXPECT_LE(allreduce.waiting_seconds, seconds(end - begin));
        EXPECT_LE(allreduce.moving_seconds, seconds(end - begin));
        const double both = allreduce.waiting_seconds + allreduce.moving_seconds;
        least_excess = std::min(least_excess, both - seconds(end - begin));
        least_waiting = std::min(least_waiting, allreduce.waiting_seconds);
        meeting.Await();
        if (rank == 0) {
          EXPECT_GE(allreduce.waiting_seconds, kLate);
          EXPECT_LE(allreduce.moving_seconds, seconds(end - late_call));
        }
      }
      // It may have been held up in some of them, or the other one. (For who does a small one for all, that
      // counts as both.)
      EXPECT_LE(least_excess, 0);
      if (rank == 1) {
        EXPECT_LT(least_waiting, kLate / 2);
      }
    }
  });
}

TEST(Statistics, MovingIsCountedWhereItIsDone) {
  std::atomic<int> movers{0};
  RunRanks(3, [&](int, Engine& engine) {
    // A small one is done by one rank for all.
    ASSERT_TRUE(Allreduce(engine, 1).ok());
    if (Of(StatsOf(engine).collectives, CollectiveKind::kAllreduce).moving_seconds > 0) movers.fetch_add(1);
    // In a staged transfer, each rank moves its own part.
    StatsOf(engine, /*reset=*/true);
    ASSERT_TRUE(Allreduce(engine, kLargeCount).ok());
    EXPECT_GT(Of(StatsOf(engine).collectives, CollectiveKind::kAllreduce).moving_seconds, 0);
  });
  EXPECT_EQ(movers.load(), 1);
}

TEST(Statistics, InArenasNothingIsStaged) {
  RunRanks(2, [](int, Engine& engine) {
    constexpr std::uint64_t kBytes = kLargeCount * sizeof(float);
    void* data = engine.arena()->Allocate(kBytes);
    ASSERT_NE(data, nullptr);
    ASSERT_TRUE(Await(engine, MakeRequest(CollectiveKind::kAllreduce, DType::kFloat32, ReduceOp::kSum, data,
                                          data, kLargeCount))
                    .ok());
    const EngineStats stats = StatsOf(engine);
    EXPECT_GE(stats.arena_used_bytes, kBytes);
    const CollectiveStats& allreduce = Of(stats.collectives, CollectiveKind::kAllreduce);
    EXPECT_EQ(allreduce.bytes, kBytes);
    EXPECT_EQ(allreduce.staged_bytes, 0u);
    EXPECT_EQ(allreduce.in_place_bytes, kBytes);
    EXPECT_EQ(allreduce.small_calls, 0u);
    EXPECT_GE(stats.arena_peak_bytes, kBytes);
    EXPECT_EQ(stats.arena_refused, 0u);
    engine.arena()->Free(data);
  });
}

TEST(Statistics, BatchesAndTheirBytes) {
  RunRanks(2, [](int, Engine& engine) {
    std::vector<std::vector<float>> data(8, std::vector<float>(10'000, 1.0f));
    const std::uint64_t ticket = DrawTicket(engine);
    std::vector<Request> requests;
    for (std::uint32_t i = 0; i < data.size(); ++i) {
      requests.push_back(InGroup(AllreduceFloats(data[i], &data[i]), ticket, i, 8));
    }
    for (const Status& status : AwaitAll(engine, std::move(requests)))
      ASSERT_TRUE(status.ok()) << status.message();
    const CommunicatorStats world = StatsOf(engine).communicators[0];
    EXPECT_EQ(world.batch_bytes, 8u * 40'000);
    EXPECT_GE(world.batches, 1u);
    EXPECT_LE(world.batches, 8u);
    EXPECT_EQ(Of(world.collectives, CollectiveKind::kAllreduce).calls, 8u);
  });
}

TEST(Statistics, ErrorsAndFailures) {
  RunRanks(2, [](int rank, Engine& engine) {
    // The ranks disagree: the incarnation fails.
    EXPECT_FALSE(Allreduce(engine, 5 + rank).ok());
    // Refused.
    Request bad =
        MakeRequest(CollectiveKind::kBroadcast, DType::kFloat32, ReduceOp::kSum, nullptr, nullptr, 0);
    bad.operation.root = RankId(7);
    EXPECT_FALSE(Await(engine, std::move(bad)).ok());
    ASSERT_TRUE(Allreduce(engine, 5).ok());
    const EngineStats stats = StatsOf(engine);
    EXPECT_EQ(stats.communicators[0].failures, 1u);
    EXPECT_EQ(Of(stats.collectives, CollectiveKind::kAllreduce).errors, 1u);
    EXPECT_EQ(Of(stats.collectives, CollectiveKind::kAllreduce).calls, 1u);
    EXPECT_EQ(Of(stats.collectives, CollectiveKind::kAllreduce).bytes, 20u);
    EXPECT_EQ(Of(stats.collectives, CollectiveKind::kBroadcast).errors, 1u);
  });
}

// Times in milliseconds: two groups that overlap, and a request beside them.
TEST(Statistics, BlockedTimeIsWithoutOverlaps) {
  CommunicatorCounters counters;
  const auto at = [](int ms) { return Clock::time_point() + std::chrono::milliseconds(100 + ms); };
  const auto of_group = [](std::uint64_t ticket) { return Pairing{Pairing::kGroup, ticket, 0, 2, ""}; };
  counters.Blocked(of_group(1), at(0), at(5));                           // while the step still computes
  counters.Blocked(of_group(1), at(10), at(20), /*arrived_last=*/true);  // the last of the group: 10
  counters.Blocked(of_group(2), at(15), at(30));
  counters.Blocked(of_group(2), at(12), at(40));  // from 15 on, of which 5 have counted: 20
  counters.Blocked(Pairing(), at(35), at(45));    // 5
  counters.Blocked(of_group(3), at(50), at(60));  // not complete
  CommunicatorStats stats;
  counters.Take(/*reset=*/true, &stats);
  EXPECT_EQ(stats.steps, 2u);
  EXPECT_EQ(stats.last_steps, 1u);
  EXPECT_NEAR(stats.step_seconds, 0.020, 1e-9);  // from 20 to 40
  EXPECT_NEAR(stats.blocked_seconds, 0.035, 1e-9);
  counters.Take(/*reset=*/false, &stats);
  EXPECT_EQ(stats.steps, 0u);
  EXPECT_NEAR(stats.blocked_seconds, 0.0, 1e-9);
}

TEST(Statistics, StepsAreGroupsOfSeveralTensors) {
  RunRanks(2, [](int, Engine& engine) {
    std::vector<float> first(5, 1.0f), second(30000, 1.0f);
    for (int step = 0; step < 3; ++step) {
      const std::uint64_t ticket = DrawTicket(engine, kWorld);
      std::vector<Request> requests;
      requests.push_back(InGroup(AllreduceIn(kWorld, &first), ticket, 0, 2));
      requests.push_back(InGroup(AllreduceIn(kWorld, &second), ticket, 1, 2));
      for (const Status& status : AwaitAll(engine, std::move(requests))) ASSERT_TRUE(status.ok());
    }
    ASSERT_TRUE(Allreduce(engine, 5).ok());
    const EngineStats stats = StatsOf(engine);
    EXPECT_EQ(stats.communicators[0].steps, 3u);
    EXPECT_GT(stats.communicators[0].blocked_seconds, 0);
  });
}

TEST(Statistics, DeferredRequestsAreCounted) {
  RunRanks(2, [](int rank, Engine& engine) {
    // Three uses of one key, of which two fit, before the other rank comes.
    std::vector<std::uint64_t> tickets;
    for (int i = 0; i < 3; ++i) tickets.push_back(DrawTicket(engine));
    std::vector<float> data(10, 1.0f);
    std::vector<std::vector<float>> outputs(3, std::vector<float>(10));
    std::vector<Request> requests;
    for (std::size_t i = 0; i < 3; ++i) {
      requests.push_back(InGroup(AllreduceFloats(data, &outputs[i]), tickets[i], 0, 1));
    }
    if (rank == 1) std::this_thread::sleep_for(std::chrono::milliseconds(100));
    for (const Status& status : AwaitAll(engine, std::move(requests)))
      ASSERT_TRUE(status.ok()) << status.message();
    if (rank == 0) {
      EXPECT_EQ(StatsOf(engine).communicators[0].deferred, 1u);
    }
  });
}

TEST(Statistics, CommunicatorsCountApartAndAreNotForgotten) {
  RunRanks(3, [](int rank, Engine& engine) {
    CommunicatorId id = kWorld;
    ASSERT_TRUE(engine.CreateCommunicator({0, 2}, &id).ok());
    if (rank != 1) {
      ASSERT_TRUE(Allreduce(engine, 100, id).ok());
    }
    ASSERT_TRUE(Allreduce(engine, 10).ok());
    const std::uint64_t all_bytes = rank == 1 ? 40 : 440;
    EngineStats stats = StatsOf(engine);
    ASSERT_EQ(stats.communicators.size(), rank == 1 ? 1u : 2u);
    EXPECT_EQ(Of(stats.collectives, CollectiveKind::kAllreduce).bytes, all_bytes);
    EXPECT_EQ(Of(stats.communicators[0].collectives, CollectiveKind::kAllreduce).bytes, 40u);
    if (rank != 1) {
      EXPECT_EQ(stats.communicators[1].id, id);
      EXPECT_EQ(stats.communicators[1].ranks, (std::vector<int>{0, 2}));
      EXPECT_EQ(Of(stats.communicators[1].collectives, CollectiveKind::kAllreduce).bytes, 400u);
    }
    ASSERT_TRUE(engine.RemoveCommunicator(id).ok());
    stats = StatsOf(engine, /*reset=*/true);
    EXPECT_EQ(stats.communicators.size(), 1u);
    EXPECT_EQ(Of(stats.collectives, CollectiveKind::kAllreduce).bytes, all_bytes);
    stats = StatsOf(engine);
    EXPECT_EQ(Of(stats.collectives, CollectiveKind::kAllreduce).bytes, 0u);
    EXPECT_EQ(Of(stats.collectives, CollectiveKind::kAllreduce).calls, 0u);
    EXPECT_EQ(Of(stats.collectives, CollectiveKind::kAllreduce).waiting_seconds, 0.0);
  });
}

TEST(Statistics, AJobOfOneRank) {
  RunRanks(1, [](int, Engine& engine) {
    ASSERT_TRUE(Allreduce(engine, kLargeCount).ok());
    const EngineStats stats = StatsOf(engine);
    const CollectiveStats& allreduce = Of(stats.collectives, CollectiveKind::kAllreduce);
    EXPECT_EQ(allreduce.calls, 1u);
    EXPECT_EQ(allreduce.bytes, 4 * static_cast<std::uint64_t>(kLargeCount));
    EXPECT_GT(allreduce.moving_seconds, 0);
    EXPECT_EQ(allreduce.waiting_seconds, 0);
    EXPECT_EQ(stats.arena_bytes, 0u);
    EXPECT_EQ(stats.communicators[0].ranks, (std::vector<int>{0}));
  });
}

TEST(Statistics, AfterShutdownThereAreNone) {
  RunRanks(2, [](int, Engine& engine) {
    ASSERT_TRUE(Barrier(engine).ok());
    ASSERT_TRUE(engine.Shutdown().ok());
    EngineStats stats;
    EXPECT_EQ(engine.Stats(false, &stats).code(), StatusCode::kFailedPrecondition);
  });
}

TEST(Statistics, AForkedChildHasNone) {
  RunRanks(1, [](int, Engine& engine) {
    const pid_t child = ::fork();
    if (child == 0) {
      EngineStats stats;
      const Status status = engine.Stats(false, &stats);
      ::_exit(status.message().find("forked child of rank 0") != std::string::npos ? 7 : 1);
    }
    int wait_status = 0;
    ASSERT_EQ(::waitpid(child, &wait_status, 0), child);
    EXPECT_EQ(WEXITSTATUS(wait_status), 7);
  });
}

TEST(Statistics, ThreadsThatCountAtOnceLoseNothing) {
  CommunicatorCounters counters;
  constexpr int kThreads = 4, kTimes = 20'000;
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&] {
      for (int time = 0; time < kTimes; ++time) {
        counters.Completed(CollectiveKind::kAllgather, 3,
                           {std::chrono::nanoseconds(2), {}, true, true, true});
      }
    });
  }
  CollectiveStats sum;
  for (int i = 0; i < 100; ++i) {
    CommunicatorStats taken;
    counters.Take(/*reset=*/true, &taken);
    sum.Add(Of(taken.collectives, CollectiveKind::kAllgather));
  }
  for (std::thread& thread : threads) thread.join();
  CommunicatorStats taken;
  counters.Take(/*reset=*/true, &taken);
  sum.Add(Of(taken.collectives, CollectiveKind::kAllgather));
  EXPECT_EQ(sum.calls, kThreads * kTimes);
  EXPECT_EQ(sum.bytes, kThreads * kTimes * 3);
  EXPECT_EQ(sum.staged_bytes, sum.bytes);
  EXPECT_EQ(sum.in_place_bytes, sum.bytes);
  EXPECT_EQ(sum.small_calls, sum.calls);
  EXPECT_NEAR(sum.waiting_seconds, kThreads * kTimes * 2e-9, 1e-12);
}

TEST(Statistics, JsonInAnyLocale) {
  const CommaLocale comma;
  EngineStats stats;
  stats.rank = 1;
  stats.size = 4;
  stats.arena_bytes = 1000;
  stats.collectives[0].calls = 12;
  stats.collectives[0].waiting_seconds = 1.5;
  CommunicatorStats world;
  world.ranks = {0, 1};
  world.failures = 3;
  stats.communicators = {world, world};
  const std::string text = ToJson(stats);
  for (const char* part :
       {"{\"rank\": 1, \"size\": 4, \"arena_bytes\": 1000, \"arena_used_bytes\": 0, "
        "\"arena_peak_bytes\": 0, \"arena_refused_calls\": 0, "
        "\"collectives\": {\"allreduce\": "
        "{\"calls\": 12, \"errors\": 0, \"bytes\": 0, \"staged_bytes\": 0, \"nccl_bytes\": 0, "
        "\"in_place_bytes\": 0, \"small_calls\": 0, \"waiting_seconds\": 1.500000000,"
        " \"moving_seconds\": 0.000000000}, \"broadcast\": {",
        "\"process_sets\": [{\"id\": 0, \"ranks\": [0, 1], \"batches\": 0, "
        "\"batch_bytes\": 0, \"deferred\": 0, "
        "\"failures\": 3, \"steps\": 0, \"last_steps\": 0, \"step_seconds\": 0.000000000, "
        "\"blocked_seconds\": 0.000000000, "
        "\"collectives\": {\"allreduce\": {\"calls\": 0"}) {
    EXPECT_NE(text.find(part), std::string::npos) << text;
  }
  EXPECT_EQ(text.substr(text.size() - 4), "}}]}") << text;
  EXPECT_EQ(text.find('\n'), std::string::npos);
}

}  // namespace
}  // namespace tf_smddp::testing

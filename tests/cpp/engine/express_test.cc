// Requests of ranks that come at the same time, and of such as don't.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/engine/engine.h"
#include "kernels/engine/statistics.h"
#include "tests/cpp/testing/ranks.h"
#include "tests/cpp/testing/sanitizers.h"

namespace tf_smddp::testing {
namespace {

constexpr int kRounds = kSanitized ? 90 : 900;

// However few cores there are: with this patience all come at the same time.
constexpr std::chrono::microseconds kPatience{100'000};
void BePatient(int, Config* config) { config->test_patience_us = kPatience.count(); }

// Submits and waits like a caller that has nothing else to do. `submitted` is called when Submit has
// returned.
Status Wait(Engine& engine, Request request, const std::function<void()>& submitted = [] {}) {
  std::atomic<bool> ended{false};
  Status outcome;
  request.callback_is_trivial = request.caller_progresses = true;
  request.done = [&](const Status& status) {
    outcome = status;
    ended.store(true, std::memory_order_release);
  };
  const CommunicatorId communicator = request.communicator;
  const auto submit = [&] {
    engine.Submit(std::move(request));
    submitted();
  };
  engine.SubmitAndProgress(communicator, Caller::kBlocking, submit, ended);
  while (!ended.load(std::memory_order_acquire)) std::this_thread::yield();
  return outcome;
}

Request AllreduceOf(const float* input, float* output, std::size_t count) {
  return MakeRequest(CollectiveKind::kAllreduce, DType::kFloat32, ReduceOp::kSum, input, output,
                     static_cast<std::int64_t>(count));
}

CollectiveStats StatsOf(Engine& engine, CollectiveKind kind) {
  EngineStats stats;
  EXPECT_TRUE(engine.Stats(/*reset=*/false, &stats).ok());
  return stats.collectives[static_cast<std::size_t>(kind)];
}

TEST(Express, AllreducesOfAllSizesAndPairings) {
  for (const int size : {2, 3}) {
    RunRanks(
        size,
        [size](int rank, Engine& engine) {
          for (int round = 0; round < kRounds; ++round) {
            // On both sides of what is put into a line, done by one rank, and taken by the lane.
            const std::size_t counts[] = {0, 1, 12, 13, 1000, 1024, 1025, 4096, 4097};
            const std::size_t count = counts[static_cast<std::size_t>(round) % 9];
            std::vector<float> data(count, static_cast<float>(round + rank)), output(count);
            Request request = AllreduceFloats(data, round % 2 == 0 ? &data : &output);
            if (round % 3 == 1) request.pairing.kind = Pairing::kOutOfBand;
            if (round % 3 == 2) request = InGroup(std::move(request), DrawTicket(engine), 0, 1);
            const Status status = Wait(engine, std::move(request));
            ASSERT_TRUE(status.ok()) << status.message();
            const auto sum = static_cast<float>(size * round + size * (size - 1) / 2);
            for (const float value : round % 2 == 0 ? data : output)
              ASSERT_EQ(value, sum) << "round " << round;
          }
          const CollectiveStats stats = StatsOf(engine, CollectiveKind::kAllreduce);
          EXPECT_EQ(stats.calls, static_cast<std::uint64_t>(kRounds));
          EXPECT_GT(stats.express_calls, 0u);
          EXPECT_GE(stats.small_calls, stats.express_calls);
        },
        BePatient);
  }
}

TEST(Express, BroadcastsAndBarriers) {
  const int size = 3;
  RunRanks(
      size,
      [](int rank, Engine& engine) {
        for (int round = 0; round < kRounds; ++round) {
          std::vector<float> data(20, static_cast<float>(round * 10 + rank)), output(20);
          Request request = AllreduceFloats(data, round % 2 == 0 ? &data : &output);
          request.operation.kind = CollectiveKind::kBroadcast;
          request.operation.root = RankId(round % size);
          ASSERT_TRUE(Wait(engine, std::move(request)).ok());
          const auto expected = static_cast<float>(round * 10 + round % size);
          for (const float value : round % 2 == 0 ? data : output) ASSERT_EQ(value, expected);
          ASSERT_TRUE(Wait(engine, MakeRequest(CollectiveKind::kBarrier, DType::kUInt8, ReduceOp::kSum,
                                               nullptr, nullptr, 0))
                          .ok());
        }
        EXPECT_GT(StatsOf(engine, CollectiveKind::kBroadcast).express_calls, 0u);
        EXPECT_GT(StatsOf(engine, CollectiveKind::kBarrier).express_calls, 0u);
      },
      BePatient);
}

// Ranks that come at different times try it for few requests only, and find back when they no longer do.
TEST(Express, IsLeftAndFoundAgain) {
  std::atomic<int> submitted{0};  // by rank 0
  RunRanks(
      2,
      [&submitted](int rank, Engine& engine) {
        float value = 1.0f;
        const auto reduce = [&](const std::function<void()>& then) {
          ASSERT_TRUE(Wait(engine, AllreduceOf(&value, &value, 1), then).ok());
        };
        const auto calls = [&] { return StatsOf(engine, CollectiveKind::kAllreduce).express_calls; };
        // Rank 1 comes when rank 0 has left. The least times that this took rank 0, with and without a try.
        auto trying = Clock::duration::max(), leaving = trying;
        for (int round = 0; round < 8; ++round) {
          while (rank == 1 && submitted <= round) std::this_thread::yield();
          const auto begin = Clock::now();
          reduce([&] {
            Clock::duration& least = round < 4 ? trying : leaving;
            least = std::min<Clock::duration>(least, Clock::now() - begin);
            if (rank == 0) submitted = round + 1;
          });
        }
        EXPECT_EQ(calls(), 0u);
        if (rank == 0) {
          EXPECT_GE(trying, kPatience);
          EXPECT_LT(trying, 2.5 * kPatience);
          EXPECT_LT(leaving, kPatience);
        }
        const int tries = 3000;
        std::uint64_t first = tries;
        for (int round = 0; round < tries; ++round) {
          reduce([] {});
          if (calls() > 0) first = std::min<std::uint64_t>(first, static_cast<std::uint64_t>(round));
        }
        EXPECT_GT(first, 0u) << "it was tried at once";
        EXPECT_GT(calls(), (tries - first) / 2) << "of " << tries << ", first met at " << first;
      },
      BePatient);
}

// A rank that waits in the lane for one whose step has failed.
TEST(Express, OfAStepThatFails) {
  RunRanks(
      2,
      [](int rank, Engine& engine) {
        for (int round = 0; round < 5; ++round) {
          float value = 1.0f;
          const StepId step = round + 1;
          if (rank == round % 2) {
            engine.FailStep(kWorld, step, "no more batches");
          } else {
            Request request = AllreduceOf(&value, &value, 1);
            request.step = step;
            const Status status = Wait(engine, std::move(request));
            EXPECT_EQ(status.code(), StatusCode::kInternal);
            EXPECT_NE(status.message().find("no more batches"), std::string::npos) << status.message();
          }
          ASSERT_TRUE(Wait(engine, AllreduceOf(&value, &value, 1)).ok());
        }
      },
      BePatient);
}

// A rank that waits in the lane for one that leaves.
TEST(Express, OfARankThatLeaves) {
  RunRanks(
      3,
      [](int rank, Engine& engine) {
        float value = 1.0f;
        if (rank == 2) {
          std::this_thread::sleep_for(std::chrono::milliseconds(20));
          ASSERT_TRUE(engine.Leave(kWorld).ok());
          return;
        }
        for (int round = 0; round < 5; ++round) {
          ASSERT_TRUE(Wait(engine, AllreduceOf(&value, &value, 1)).ok());
          ASSERT_EQ(value, static_cast<float>(2 << round));
        }
        EXPECT_EQ(StatsOf(engine, CollectiveKind::kAllreduce).express_calls, 0u);
      },
      BePatient);
}

// Some are late, some are submitted by callers that don't stay, and groups have small and large tensors.
TEST(Express, MixedWithEverythingElse) {
  const int size = 2;
  RunRanks(
      size,
      [](int rank, Engine& engine) {
        std::mt19937 random(static_cast<unsigned>(rank));
        for (int round = 0; round < kRounds / 10; ++round) {
          const std::uint64_t ticket = DrawTicket(engine);
          const std::vector<std::size_t> counts = {3, 50'000, 700, 5'000};
          std::vector<std::vector<float>> tensors;
          for (const std::size_t count : counts) {
            tensors.emplace_back(count, static_cast<float>(round + rank));
          }
          std::vector<Status> outcomes(counts.size());
          std::atomic<int> left{static_cast<int>(counts.size())};
          std::atomic<bool> ended{false};
          if (random() % 3 == 0) std::this_thread::sleep_for(std::chrono::microseconds(random() % 300));
          const auto submit = [&] {
            for (std::uint32_t i = 0; i < counts.size(); ++i) {
              Request request = InGroup(AllreduceFloats(tensors[i], &tensors[i]), ticket, i,
                                        static_cast<std::uint32_t>(counts.size()));
              request.caller_progresses = random() % 4 != 0;
              request.done = [&, i](const Status& status) {
                outcomes[i] = status;
                if (--left == 0) ended.store(true, std::memory_order_release);
              };
              engine.Submit(std::move(request));
            }
          };
          engine.SubmitAndProgress(kWorld, round % 2 == 0 ? Caller::kBlocking : Caller::kNonBlocking, submit,
                                   ended);
          while (!ended.load(std::memory_order_acquire)) std::this_thread::yield();
          for (const Status& outcome : outcomes) ASSERT_TRUE(outcome.ok()) << outcome.message();
          for (const std::vector<float>& tensor : tensors) {
            for (const float value : tensor) ASSERT_EQ(value, static_cast<float>(2 * round + 1));
          }
        }
      },
      BePatient);
}

// Two threads of a rank, in two sequences of one communicator, whose requests look alike: which of them is in
// the lane differs between the ranks. (Group ticket n and out-of-band ticket n ^ 2, among others.)
TEST(Express, TwoThreadsInOneLane) {
  constexpr int kMostRounds = 20'000;  // on a busy machine they are seldom there together
  RunRanks(
      2,
      [](int rank, Engine& engine) {
        const auto work = [&](Pairing::Kind kind, float salt) {
          std::mt19937 random(static_cast<unsigned>(rank) + static_cast<unsigned>(salt));
          // Both ranks end in the same round: when the sum says that each has met the other.
          bool met = false;
          for (int round = 0; round < kRounds || (!met && round < kMostRounds); ++round) {
            const bool has_met =
                round >= kRounds && StatsOf(engine, CollectiveKind::kAllreduce).express_calls > 0;
            std::vector<float> data = {salt + static_cast<float>(round + rank), has_met ? 1.0f : 0.0f};
            Request request = AllreduceFloats(data, &data);
            request.pairing.num_params = 1;
            request.pairing.kind = kind;
            if (kind == Pairing::kGroup) request.pairing.ticket = DrawTicket(engine);
            if (random() % 8 == 0) std::this_thread::yield();
            const Status status = Wait(engine, std::move(request));
            ASSERT_TRUE(status.ok()) << status.message();
            ASSERT_EQ(data[0], 2 * salt + static_cast<float>(2 * round + 1));
            met = data[1] == 2.0f;
          }
        };
        std::thread other([&] { work(Pairing::kOutOfBand, 100'000.0f); });
        work(Pairing::kGroup, 0.0f);
        other.join();
        EXPECT_GT(StatsOf(engine, CollectiveKind::kAllreduce).express_calls, 0u);
      },
      [](int, Config* config) { config->test_patience_us = 2'000; });
}

// Differences are found as ever, and the ranks go on together.
TEST(Express, DifferencesFailOnAllRanks) {
  RunRanks(
      2,
      [](int rank, Engine& engine) {
        for (int round = 0; round < kRounds / 10; ++round) {
          std::vector<float> data(round % 5 == 4 ? static_cast<std::size_t>(3 + rank) : 3, 1.0f);
          const Status status = Wait(engine, AllreduceFloats(data, &data));
          if (round % 5 == 4) {
            EXPECT_EQ(status.code(), StatusCode::kInternal);
            EXPECT_NE(status.message().find("the ranks run different collectives"), std::string::npos)
                << status.message();
          } else {
            ASSERT_TRUE(status.ok()) << status.message();
            ASSERT_EQ(data[2], 2.0f);
          }
        }
      },
      BePatient);
}

// SMDDP_SMALL_BYTES=0 turns the lane off.
TEST(Express, NotForAll) {
  RunRanks(
      2,
      [](int, Engine& engine) {
        std::vector<float> data(3, 1.0f);
        for (int round = 0; round < 20; ++round) {
          ASSERT_TRUE(Wait(engine, AllreduceFloats(data, &data)).ok());
        }
        EXPECT_EQ(StatsOf(engine, CollectiveKind::kAllreduce).express_calls, 0u);
        EXPECT_EQ(StatsOf(engine, CollectiveKind::kAllreduce).small_calls, 0u);
      },
      [](int, Config* config) {
        BePatient(0, config);
        config->small_bytes = 0;
      });
}

}  // namespace
}  // namespace tf_smddp::testing

// Requests whose callers drive the progress and wait, as in eager execution.
#include <atomic>
#include <chrono>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/engine/engine.h"
#include "kernels/engine/watch/statistics.h"
#include "tests/cpp/testing/ranks.h"
#include "tests/cpp/testing/sanitizers.h"

namespace tf_smddp::testing {
namespace {

constexpr int kRounds = kSanitized ? 90 : 900;

// Submits and waits like a caller that has nothing else to do.
Status Wait(Engine& engine, Request request) {
  std::atomic<bool> ended{false};
  Status outcome;
  request.callback_is_trivial = request.caller_progresses = request.seals_at_once = true;
  request.done = [&](const Status& status) {
    outcome = status;
    ended.store(true, std::memory_order_release);
  };
  const CommunicatorId communicator = request.communicator;
  engine.SubmitAndProgress(
      communicator, Caller::kBlocking, [&] { engine.Submit(std::move(request)); }, ended);
  while (!ended.load(std::memory_order_acquire)) std::this_thread::yield();
  return outcome;
}

TEST(Callers, AllreducesOfAllSizesAndPairings) {
  for (const int size : {2, 3}) {
    RunRanks(size, [size](int rank, Engine& engine) {
      std::uint64_t small = 0;
      for (int round = 0; round < kRounds; ++round) {
        // On both sides of what one rank reduces for all.
        const std::size_t counts[] = {0, 1, 1000, 1024, 1025, 4097};
        const std::size_t count = counts[static_cast<std::size_t>(round) % 6];
        small += count <= 1024 ? 1 : 0;
        std::vector<float> data(count, static_cast<float>(round + rank)), output(count);
        Request request = AllreduceFloats(data, round % 4 < 2 ? &data : &output);
        if (round % 3 == 1) request.pairing.kind = Pairing::kOutOfBand;
        if (round % 3 == 2) request = InGroup(std::move(request), DrawTicket(engine), 0, 1);
        const Status status = Wait(engine, std::move(request));
        ASSERT_TRUE(status.ok()) << status.message();
        const auto sum = static_cast<float>(size * round + size * (size - 1) / 2);
        for (const float value : round % 4 < 2 ? data : output) ASSERT_EQ(value, sum) << "round " << round;
      }
      EngineStats stats;
      ASSERT_TRUE(engine.Stats(/*reset=*/false, &stats).ok());
      const CollectiveStats& allreduce =
          stats.collectives[static_cast<std::size_t>(CollectiveKind::kAllreduce)];
      EXPECT_EQ(allreduce.calls, static_cast<std::uint64_t>(kRounds));
      EXPECT_EQ(allreduce.small_calls, small);
    });
  }
}

TEST(Callers, WaitForARankWhoseStepFails) {
  RunRanks(2, [](int rank, Engine& engine) {
    for (int round = 0; round < 5; ++round) {
      std::vector<float> data(1, 1.0f);
      const StepId step = round + 1;
      if (rank == round % 2) {
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
        engine.FailStep(kWorld, step, "no more batches");
      } else {
        Request request = AllreduceFloats(data, &data);
        request.step = step;
        const Status status = Wait(engine, std::move(request));
        EXPECT_EQ(status.code(), StatusCode::kInternal);
        EXPECT_NE(status.message().find("no more batches"), std::string::npos) << status.message();
      }
      ASSERT_TRUE(Wait(engine, AllreduceFloats(data, &data)).ok());
    }
  });
}

TEST(Callers, WaitForARankThatLeaves) {
  RunRanks(3, [](int rank, Engine& engine) {
    std::vector<float> data(1, 1.0f);
    if (rank == 2) {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      ASSERT_TRUE(engine.Leave(kWorld).ok());
      return;
    }
    for (int round = 0; round < 5; ++round) {
      ASSERT_TRUE(Wait(engine, AllreduceFloats(data, &data)).ok());
      ASSERT_EQ(data[0], static_cast<float>(2 << round));
    }
  });
}

// Some ranks are late, some requests are of callers that do not drive, and groups have small and large
// tensors.
TEST(Callers, BesideOthersInOneGroup) {
  RunRanks(2, [](int rank, Engine& engine) {
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
  });
}

// Two threads of a rank, in two sequences of one communicator. Which of them drives differs between the
// ranks.
TEST(Callers, TwoThreadsInOneCommunicator) {
  RunRanks(2, [](int rank, Engine& engine) {
    const auto work = [&](Pairing::Kind kind, float salt) {
      std::mt19937 random(static_cast<unsigned>(rank) + static_cast<unsigned>(salt));
      for (int round = 0; round < kRounds; ++round) {
        std::vector<float> data(1, salt + static_cast<float>(round + rank));
        Request request = AllreduceFloats(data, &data);
        if (kind == Pairing::kGroup) request = InGroup(std::move(request), DrawTicket(engine), 0, 1);
        request.pairing.kind = kind;
        if (random() % 8 == 0) std::this_thread::yield();
        const Status status = Wait(engine, std::move(request));
        ASSERT_TRUE(status.ok()) << status.message();
        ASSERT_EQ(data[0], 2 * salt + static_cast<float>(2 * round + 1));
      }
    };
    std::thread other([&] { work(Pairing::kOutOfBand, 100'000.0f); });
    work(Pairing::kGroup, 0.0f);
    other.join();
  });
}

}  // namespace
}  // namespace tf_smddp::testing

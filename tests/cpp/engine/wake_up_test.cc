// No wake-up is lost. A rank that sleeps while it has work is an error in tests (Config::test_strict): the
// progress thread finds that work only when its safety net of 1 s ends the sleep.
#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "tests/cpp/testing/ranks.h"
#include "tests/cpp/testing/sanitizers.h"

namespace tf_smddp::testing {
namespace {

// Several threads of each rank submit the small tensors of a group at once, as the executor of a graph does:
// while one thread is between claiming its entry of the log and publishing it, another rank publishes the
// next entry and rings.
TEST(WakeUp, ThreadsThatLaunchSmallRequestsAtOnce) {
  constexpr int kThreads = 3, kTensors = 60;
  const int steps = kSanitized ? 50 : 400;
  RunRanks(2, [&](int, Engine& engine) {
    for (int step = 0; step < steps; ++step) {
      const std::uint64_t ticket = DrawTicket(engine);
      std::vector<std::vector<float>> data(kTensors, std::vector<float>(64, 1));
      std::atomic<int> left{kTensors};
      std::promise<void> ended;
      std::vector<std::thread> threads;
      for (int thread = 0; thread < kThreads; ++thread) {
        threads.emplace_back([&, thread] {
          for (int i = thread; i < kTensors; i += kThreads) {
            std::vector<float>& own = data[static_cast<std::size_t>(i)];
            Request request =
                InGroup(AllreduceFloats(own, &own), ticket, static_cast<std::uint32_t>(i), kTensors);
            const auto over = std::make_shared<std::atomic<bool>>(false);
            request.caller_progresses = true;
            request.done = [&, over](const Status& status) {
              EXPECT_TRUE(status.ok()) << status.message();
              over->store(true);
              if (--left == 0) ended.set_value();
            };
            engine.SubmitAndProgress(
                kWorld, Caller::kNonBlocking, [&] { engine.Submit(std::move(request)); }, *over);
          }
        });
      }
      for (std::thread& thread : threads) thread.join();
      ended.get_future().get();
      for (const std::vector<float>& each : data) ASSERT_EQ(each[0], 2);
    }
  });
}

// The log laps many times, whatever the number of slots: readers never lag behind by more than it holds.
TEST(WakeUp, TheSmallestTable) {
  RunRanks(
      3,
      [&](int rank, Engine& engine) {
        for (int step = 0; step < (kSanitized ? 200 : 2000); ++step) {
          std::vector<std::vector<float>> data(9, std::vector<float>(step % 3 == 0 ? 3000 : 3, 1));
          std::vector<Request> requests;
          const std::uint64_t ticket = DrawTicket(engine);
          for (std::uint32_t i = 0; i < 9; ++i) {
            requests.push_back(InGroup(AllreduceFloats(data[i], &data[i]), ticket, i, 9));
          }
          if (rank == step % 3) std::this_thread::sleep_for(std::chrono::microseconds(50));
          for (const Status& status : AwaitAll(engine, std::move(requests))) {
            ASSERT_TRUE(status.ok()) << status.message();
          }
          for (const std::vector<float>& each : data) ASSERT_EQ(each[0], 3);
        }
      },
      [](int, Config* config) { config->table_slots = 16; });
}

}  // namespace
}  // namespace tf_smddp::testing

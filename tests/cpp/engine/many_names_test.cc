// 100,000 distinct names in one job.
#include <chrono>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "tests/cpp/testing/ranks.h"
#include "tests/cpp/testing/sanitizers.h"
#include "tests/cpp/testing/usage.h"

namespace tf_smddp::testing {
namespace {

using Clock = std::chrono::steady_clock;

double SecondsSince(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

TEST(ManyNames, OneHundredThousandInOneJob) {
  const int names = kSanitized ? 20000 : 100000, at_once = 500;
  const Usage before = ReadUsage();
  RunRanks(
      2,
      [&](int rank, Engine& engine) {
        std::vector<double> seconds;
        for (int pass = 0; pass < 2; ++pass) {  // all are new, then all are known
          const auto begin = Clock::now();
          for (int first = 0; first < names; first += at_once) {
            std::vector<float> data(static_cast<std::size_t>(at_once));
            std::vector<Request> requests;
            for (int i = 0; i < at_once; ++i) {
              float& value = data[static_cast<std::size_t>(i)];
              value = static_cast<float>((first + i) % 1000 + rank);
              // The ranks go through them in opposite directions, and one name is as long as a deep model's.
              const int number = first + (rank == 0 ? i : at_once - 1 - i);
              value = static_cast<float>(number % 1000 + rank);
              requests.push_back(Named(
                  MakeRequest(CollectiveKind::kAllreduce, DType::kFloat32, ReduceOp::kSum, &value, &value, 1),
                  "model/encoder/layer_with_a_long_name/attention/" + std::to_string(number)));
            }
            for (const Status& status : AwaitAll(engine, std::move(requests))) {
              ASSERT_TRUE(status.ok()) << status.message();
            }
            for (int i = 0; i < at_once; ++i) {
              const int number = first + (rank == 0 ? i : at_once - 1 - i);
              ASSERT_EQ(data[static_cast<std::size_t>(i)], static_cast<float>(2 * (number % 1000) + 1))
                  << number;
            }
          }
          seconds.push_back(SecondsSince(begin));
        }
        // A failure clears the table, so all names are new again.
        const auto begin = Clock::now();
        float value = 1.0f;
        Request request = MakeRequest(CollectiveKind::kAllreduce, DType::kFloat32, ReduceOp::kSum, &value,
                                      &value, 1 - rank);
        EXPECT_FALSE(Await(engine, request).ok());
        request.shape = {1};
        const Status status = Await(engine, request);
        EXPECT_TRUE(status.ok()) << status.message();
        const double restart = SecondsSince(begin);
        EXPECT_LT(restart, kSanitized ? 10.0 : 1.0);
        if (rank != 0) return;
        std::printf(
            "%d names: %.2f s new, %.2f s known, %.3f s to fail an incarnation; %lld MiB resident for both "
            "ranks\n",
            names, seconds[0], seconds[1], restart,
            static_cast<long long>((ReadUsage().resident_bytes - before.resident_bytes) >> 20));
      },
      [](int, Config* config) { config->table_slots = Config().table_slots; });
}

}  // namespace
}  // namespace tf_smddp::testing

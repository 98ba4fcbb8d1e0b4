// The look for gradients that are not finite, before they are reduced.
#include "kernels/engine/core/gradient_check.h"

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/control/ticket.h"
#include "tests/cpp/testing/ranks.h"

namespace tf_smddp::testing {
namespace {

template <typename T>
void ExpectFoundAtEachPlace(DType dtype) {
  for (const double broken : {std::nan(""), HUGE_VAL, -HUGE_VAL}) {
    for (const std::size_t count : {1, 2, 7, 64, 100}) {
      std::vector<T> data(count, -std::numeric_limits<T>::max());
      EXPECT_TRUE(AllFinite(dtype, data.data(), count * sizeof(T)));
      for (std::size_t i = 0; i < count; ++i) {
        std::vector<T> one = data;
        one[i] = static_cast<T>(broken);
        EXPECT_FALSE(AllFinite(dtype, one.data(), count * sizeof(T))) << count << ", " << i;
      }
    }
  }
}

TEST(AllFinite, LooksAtEachElement) {
  ExpectFoundAtEachPlace<float>(DType::kFloat32);
  ExpectFoundAtEachPlace<float>(DType::kComplex64);
  ExpectFoundAtEachPlace<double>(DType::kFloat64);
  ExpectFoundAtEachPlace<double>(DType::kComplex128);
  // The largest number, infinity, a NaN.
  for (const std::uint16_t bits : {0x7f7f, 0xff7f, 0x7f80, 0xff80, 0x7fc0}) {
    EXPECT_EQ(AllFinite(DType::kBFloat16, &bits, sizeof bits), (bits & 0x7fff) < 0x7f80);
  }
  EXPECT_TRUE(AllFinite(DType::kFloat32, nullptr, 0));
  const float nan = std::nanf("");
  EXPECT_TRUE(AllFinite(DType::kInt32, &nan, sizeof nan));
}

// Runs `groups` groups of one tensor, in which rank 1's has a NaN in the groups from `broken` on. Returns
// what has been logged.
std::string LogOf(std::uint64_t groups, std::uint64_t broken, bool is_gradient, std::size_t count,
                  bool check = true) {
  ::testing::internal::CaptureStderr();
  RunRanks(
      2,
      [&](int rank, Engine& engine) {
        for (std::uint64_t i = 0; i < groups; ++i) {
          std::vector<float> data(count, 1.0f);
          if (rank == 1 && i >= broken) data.back() = std::nanf("");
          Request request = AllreduceFloats(data, &data);
          request.label = "layer/kernel";
          if (is_gradient) request.meaning.gradient = 1;
          const Status status = Await(engine, InGroup(std::move(request), DrawTicket(engine), 0, 1));
          ASSERT_TRUE(status.ok()) << status.message();
        }
      },
      [&](int, Config* config) {
        config->check_gradients = check;
        config->log_level = static_cast<int>(LogLevel::kWarning);
      });
  return ::testing::internal::GetCapturedStderr();
}

TEST(GradientCheck, NamesTheRankAndTheTensorOnce) {
  // Small ones are reduced on the spot.
  for (const std::size_t count : {3, 5000}) {
    const std::string log = LogOf(4, 1, true, count);
    EXPECT_NE(log.find("[tf_smddp rank 1 warning] this rank's gradient has a NaN or an infinity"),
              std::string::npos)
        << log;
    EXPECT_NE(log.find("number 1 (counted from 0)"), std::string::npos) << log;
    EXPECT_NE(log.find("'layer/kernel'"), std::string::npos) << log;
    EXPECT_EQ(log.find("NaN"), log.rfind("NaN")) << log;
  }
}

TEST(GradientCheck, LooksNowAndThen) {
  EXPECT_NE(LogOf(102, 50, true, 3).find("number 101 (counted from 0)"), std::string::npos);
  EXPECT_EQ(LogOf(100, 50, true, 3), "");
}

TEST(GradientCheck, CountsFromZeroAfterAFailedStep) {
  std::vector<float> data(3, std::nanf(""));
  const Request request = AllreduceFloats(data, &data);
  Meaning meaning;
  meaning.gradient = 1;
  const Manifest manifest = MakeManifest(request.operation, 0, 1, {3}, "w", meaning);
  ::testing::internal::CaptureStderr();
  GradientCheck().Look(request, manifest, (std::uint64_t{1} << kTicketNumberBits) | 2,
                       Logger(LogLevel::kWarning, 0));
  EXPECT_NE(::testing::internal::GetCapturedStderr().find("number 2 (counted from 0)"), std::string::npos);
}

TEST(GradientCheck, LooksAtGradientsOnlyAndCanBeTurnedOff) {
  EXPECT_EQ(LogOf(3, 0, false, 3), "");
  EXPECT_EQ(LogOf(3, 0, true, 3, false), "");
}

}  // namespace
}  // namespace tf_smddp::testing

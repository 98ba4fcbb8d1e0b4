// The integer average is the truncated quotient of the exact sum, where that is hardest: at the limits of
// each type, and where the sum is one off a multiple of the number of inputs.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "kernels/reduce/targets.h"
#include "tests/cpp/reduce/reduced.h"
#include "tests/cpp/reduce/test_data.h"

namespace tf_smddp {
namespace {

__extension__ using Int128 = __int128;

template <typename T>
std::vector<T> Averages(const ReduceTargetInfo& target, const std::vector<std::vector<T>>& inputs) {
  std::vector<const void*> in;
  for (const std::vector<T>& input : inputs) in.push_back(input.data());
  std::vector<T> result(inputs[0].size());
  void* out = result.data();
  ReduceOn(target, {DTypeOf<T>(), ReduceOp::kAverage}, in.data(), static_cast<int>(in.size()), &out, 1,
           result.size());
  return result;
}

// Returns all values of 8 and 16 bits. For wider types, returns the limits, values around zero and the powers
// of two, and random values.
template <typename T>
std::vector<T> Values() {
  using Limits = std::numeric_limits<T>;
  std::vector<T> values;
  if (sizeof(T) <= 2) {
    for (int value = Limits::min(); value <= static_cast<int>(Limits::max()); ++value) {
      values.push_back(static_cast<T>(value));
    }
    return values;
  }
  for (int i = 0; i < 4; ++i) {
    values.push_back(static_cast<T>(Limits::min() + i));
    values.push_back(static_cast<T>(Limits::max() - i));
    values.push_back(static_cast<T>(i));
    values.push_back(static_cast<T>(0 - i));  // near the largest, where there is no sign
  }
  for (unsigned bit = 2; bit < 8 * sizeof(T) - 1; ++bit) {
    for (int i = -1; i <= 1; ++i) {
      values.push_back(static_cast<T>((T{1} << bit) + i));
      values.push_back(static_cast<T>(~(T{1} << bit) + i));
    }
  }
  std::mt19937_64 rng(6);
  for (int i = 0; i < 2000; ++i) values.push_back(static_cast<T>(rng()));
  return values;
}

class IntegerAverageTest : public testing::TestWithParam<ReduceTargetInfo> {
 protected:
  // For each value v, makes n inputs whose sum is n v - 1, n v or n v + 1. Rounding is most likely to push
  // these quotients across the integer v. The inputs are v, but for one; or v - d and v + d alternately, as
  // far as the type goes.
  template <typename T>
  void CheckAroundMultiples() {
    using Limits = std::numeric_limits<T>;
    const std::vector<T> values = Values<T>();
    for (const int n : {2, 3, 5, 7, 11, 31, 47, 63, 64}) {
      std::vector<std::vector<T>> inputs(n);
      std::vector<Int128> sums;
      for (const T v : values) {
        const T d =
            static_cast<T>(std::min(static_cast<Int128>(v) - Limits::min(), Int128{Limits::max()} - v));
        for (const int off : {-1, 0, 1}) {
          if ((off < 0 && v == Limits::min()) || (off > 0 && v == Limits::max())) continue;
          Int128 sum = 0;
          for (int i = 0; i < n; ++i) {
            T x = v;
            if (i + i % 2 + 1 < n)
              x = static_cast<T>(i % 2 == 0 ? x - d : x + d);  // in pairs, never the last
            if (i == n - 1) x = static_cast<T>(x + off);
            inputs[i].push_back(x);
            sum += x;
          }
          sums.push_back(sum);
        }
      }
      const std::vector<T> averages = Averages(GetParam(), inputs);
      for (std::size_t e = 0; e < sums.size(); ++e) {
        ASSERT_EQ(averages[e], static_cast<T>(sums[e] / n))
            << DTypeName(DTypeOf<T>()) << ": element " << e << ", " << n << " inputs, the last is "
            << +inputs[n - 1][e];
      }
    }
  }

  template <typename T>
  void CheckLimits() {
    using Limits = std::numeric_limits<T>;
    for (int n = 2; n <= 64; ++n) {
      const std::string what = std::string(DTypeName(DTypeOf<T>())) + ", " + std::to_string(n) + " inputs";
      std::vector<T> most(n, Limits::max()), least(n, Limits::min());
      EXPECT_EQ(Reduced(GetParam(), ReduceOp::kAverage, most), Limits::max()) << what;
      EXPECT_EQ(Reduced(GetParam(), ReduceOp::kAverage, least), Limits::min()) << what;
      most[n / 2] -= 1;
      EXPECT_EQ(Reduced(GetParam(), ReduceOp::kAverage, most), static_cast<T>(Limits::max() - 1)) << what;
      least[n / 2] += 1;  // truncation is toward zero
      EXPECT_EQ(Reduced(GetParam(), ReduceOp::kAverage, least),
                static_cast<T>(Limits::min() + (Limits::min() < 0)))
          << what;
    }
  }
};

TEST_P(IntegerAverageTest, TowardZero) {
  EXPECT_EQ(Reduced<std::int8_t>(GetParam(), ReduceOp::kAverage, {-1, -2}), -1);
  EXPECT_EQ(Reduced<std::int16_t>(GetParam(), ReduceOp::kAverage, {-1, -2}), -1);
  EXPECT_EQ(Reduced<std::int32_t>(GetParam(), ReduceOp::kAverage, {-1, -2}), -1);
  EXPECT_EQ(Reduced<std::int64_t>(GetParam(), ReduceOp::kAverage, {-1, -2}), -1);
}

TEST_P(IntegerAverageTest, AtTheLimits) {
  CheckLimits<std::int8_t>();
  CheckLimits<std::uint8_t>();
  CheckLimits<std::int16_t>();
  CheckLimits<std::uint16_t>();
  CheckLimits<std::int32_t>();
  CheckLimits<std::uint32_t>();
  CheckLimits<std::int64_t>();
  CheckLimits<std::uint64_t>();
}

TEST_P(IntegerAverageTest, AroundMultiples8) {
  CheckAroundMultiples<std::int8_t>();
  CheckAroundMultiples<std::uint8_t>();
}
TEST_P(IntegerAverageTest, AroundMultiples16) {
  CheckAroundMultiples<std::int16_t>();
  CheckAroundMultiples<std::uint16_t>();
}
TEST_P(IntegerAverageTest, AroundMultiples32) {
  CheckAroundMultiples<std::int32_t>();
  CheckAroundMultiples<std::uint32_t>();
}
TEST_P(IntegerAverageTest, AroundMultiples64) {
  CheckAroundMultiples<std::int64_t>();
  CheckAroundMultiples<std::uint64_t>();
}

// Every possible sum of uint8, over every number of inputs.
TEST_P(IntegerAverageTest, EveryUInt8Quotient) {
  for (int n = 2; n <= 64; ++n) {
    const std::size_t count = 255 * static_cast<std::size_t>(n) + 1;
    std::vector<std::vector<std::uint8_t>> inputs(n, std::vector<std::uint8_t>(count));
    for (std::size_t sum = 0; sum < count; ++sum) {
      for (int i = 0; i < n; ++i) {
        inputs[i][sum] = static_cast<std::uint8_t>(sum / n + (i < static_cast<int>(sum % n) ? 1 : 0));
      }
    }
    const std::vector<std::uint8_t> result = Averages(GetParam(), inputs);
    for (std::size_t sum = 0; sum < count; ++sum) ASSERT_EQ(result[sum], sum / n) << sum << " / " << n;
  }
}

INSTANTIATE_TEST_SUITE_P(Targets, IntegerAverageTest, testing::ValuesIn(RunnableReduceTargets()),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace tf_smddp

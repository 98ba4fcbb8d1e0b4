// Conversions to 16 bits and back: every pattern, every middle, every length and misalignment; on each
// target.
#include "kernels/reduce/convert.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "kernels/reduce/targets.h"
#include "tests/cpp/reduce/reference.h"
#include "tests/cpp/reduce/test_data.h"

namespace tf_smddp {
namespace {

using Halves = std::vector<std::uint16_t>;

class ConvertTest : public testing::TestWithParam<std::tuple<ReduceTargetInfo, DType>> {
 protected:
  HalfFormat format() const {
    return std::get<1>(GetParam()) == DType::kFloat16 ? kFloat16Format : kBFloat16Format;
  }
  Halves Narrow(const std::vector<float>& from) const {
    Halves to(from.size());
    FloatsToHalvesOn(std::get<0>(GetParam()), std::get<1>(GetParam()), from.data(), to.data(), from.size());
    return to;
  }
  std::vector<float> Widen(const Halves& from) const {
    std::vector<float> to(from.size());
    HalvesToFloatsOn(std::get<0>(GetParam()), std::get<1>(GetParam()), from.data(), to.data(), from.size());
    return to;
  }
  static Halves All() {
    Halves all;
    for (int bits = 0; bits < 0x10000; ++bits) all.push_back(static_cast<std::uint16_t>(bits));
    return all;
  }
};

TEST_P(ConvertTest, EveryPatternSurvives) {
  const Halves all = All(), back = Narrow(Widen(all));
  const std::vector<float> wide = Widen(all);
  for (std::size_t i = 0; i < all.size(); ++i) {
    const double value = DecodeHalf(format(), all[i]);
    ASSERT_EQ(std::isnan(value), std::isnan(wide[i])) << all[i];
    ASSERT_EQ(back[i], std::isnan(value) ? EncodeHalf(format(), value) : all[i]) << all[i];
    if (!std::isnan(value)) {
      ASSERT_EQ(static_cast<double>(wide[i]), value) << all[i];
    }
  }
}

// Each finite pattern, the middle between it and the next one, and the float32 just beside that.
TEST_P(ConvertTest, RoundsToNearestEven) {
  std::vector<float> values;
  for (const std::uint16_t bits : All()) {
    const double low = DecodeHalf(format(), bits);
    const double high = DecodeHalf(format(), static_cast<std::uint16_t>(bits + 1));
    if (!std::isfinite(low) || !std::isfinite(high)) continue;
    const auto middle = static_cast<float>((low + high) / 2);
    const float infinity = std::numeric_limits<float>::infinity();
    for (const float each : {middle, std::nextafter(middle, infinity), std::nextafter(middle, -infinity)}) {
      values.push_back(each);
    }
  }
  for (const float each : {65519.9f, 65520.0f, 1e30f, 3.4e38f, 1e-45f, -0.0f}) values.push_back(each);
  ASSERT_GT(values.size(), 100'000u);
  const Halves narrow = Narrow(values);
  for (std::size_t i = 0; i < values.size(); ++i) {
    ASSERT_EQ(narrow[i], EncodeHalf(format(), static_cast<double>(values[i]))) << values[i];
  }
}

TEST_P(ConvertTest, EveryLengthAndMisalignmentAndNothingBeyond) {
  const auto& [target, dtype] = GetParam();
  std::mt19937_64 random(1);
  for (std::size_t offset = 0; offset < 4; ++offset) {
    for (std::size_t count = 0; count < 70; ++count) {
      std::vector<float> from(offset + count + 1);
      for (float& value : from)
        value = static_cast<float>(static_cast<std::int64_t>(random() % 2001) - 1000) / 7;
      Halves to(offset + count + 1, 0x1234);
      FloatsToHalvesOn(target, dtype, from.data() + offset, to.data() + offset, count);
      for (std::size_t e = 0; e < to.size(); ++e) {
        const bool inside = e >= offset && e < offset + count;
        ASSERT_EQ(to[e], inside ? EncodeHalf(format(), static_cast<double>(from[e])) : 0x1234);
      }
      std::vector<float> back(offset + count + 1, -1.5e30f);
      HalvesToFloatsOn(target, dtype, to.data() + offset, back.data() + offset, count);
      for (std::size_t e = 0; e < back.size(); ++e) {
        const bool inside = e >= offset && e < offset + count;
        ASSERT_EQ(back[e], inside ? static_cast<float>(DecodeHalf(format(), to[e])) : -1.5e30f);
      }
    }
  }
}

TEST(Convert, TakesTheBestTarget) {
  const std::vector<float> values = {1.0f, 1.0f / 3, -2e-8f};
  Halves found(3), expected(3);
  FloatsToHalves(DType::kBFloat16, values.data(), found.data(), 3);
  FloatsToHalvesOn(RunnableReduceTargets().front(), DType::kBFloat16, values.data(), expected.data(), 3);
  EXPECT_EQ(found, expected);
  std::vector<float> back(3);
  HalvesToFloats(DType::kBFloat16, found.data(), back.data(), 3);
  EXPECT_EQ(back[0], 1.0f);
}

INSTANTIATE_TEST_SUITE_P(Targets, ConvertTest,
                         testing::Combine(testing::ValuesIn(RunnableReduceTargets()),
                                          testing::Values(DType::kFloat16, DType::kBFloat16)),
                         [](const auto& info) {
                           return std::string(std::get<0>(info.param).name) + "_" +
                                  DTypeName(std::get<1>(info.param));
                         });

}  // namespace
}  // namespace tf_smddp

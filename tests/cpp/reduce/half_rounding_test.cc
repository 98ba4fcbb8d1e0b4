// float16 and bfloat16, exhaustively: every pattern, every point between two neighbours, and just beside it.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <string>
#include <tuple>
#include <vector>

#include "kernels/reduce/targets.h"
#include "tests/cpp/reduce/reference.h"
#include "tests/cpp/reduce/test_data.h"

namespace tf_smddp {
namespace {

using Patterns = std::vector<std::uint16_t>;

class HalfTest : public testing::TestWithParam<std::tuple<ReduceTargetInfo, DType>> {
 protected:
  HalfFormat format() const {
    return std::get<1>(GetParam()) == DType::kFloat16 ? kFloat16Format : kBFloat16Format;
  }
  int infinity() const { return ((1 << format().exponent_bits) - 1) << format().mantissa_bits; }
  std::uint16_t quiet_nan() const {
    return static_cast<std::uint16_t>(infinity() | 1 << (format().mantissa_bits - 1));
  }
  bool IsNaN(std::uint16_t bits) const { return (bits & 0x7FFF) > infinity(); }

  Patterns Run(ReduceOp op, const std::vector<Patterns>& inputs, double prescale = 1,
               double postscale = 1) const {
    const auto& [target, dtype] = GetParam();
    std::vector<const void*> in;
    for (const Patterns& input : inputs) in.push_back(input.data());
    Patterns result(inputs[0].size());
    void* out = result.data();
    ReduceOn(target, {dtype, op, prescale, postscale}, in.data(), static_cast<int>(in.size()), &out, 1,
             result.size());
    return result;
  }

  static Patterns All() {
    Patterns all;
    for (int bits = 0; bits < 0x10000; ++bits) all.push_back(static_cast<std::uint16_t>(bits));
    return all;
  }
};

// There and back: x max x is x, through float32.
TEST_P(HalfTest, EveryPatternSurvives) {
  const Patterns all = All();
  for (const ReduceOp op : {ReduceOp::kMin, ReduceOp::kMax}) {
    const Patterns result = Run(op, {all, all});
    for (std::size_t i = 0; i < all.size(); ++i) {
      ASSERT_EQ(result[i], IsNaN(all[i]) ? quiet_nan() : all[i]) << ReduceOpName(op) << " of " << all[i];
    }
  }
}

// The reduction of one input is a copy, so NaNs keep their bits.
TEST_P(HalfTest, OneInputIsCopied) { EXPECT_EQ(Run(ReduceOp::kSum, {All()}), All()); }

// Sums and products of every pattern with a few others, against arithmetic that shares no code.
TEST_P(HalfTest, EveryPatternWithOthers) {
  const Patterns all = All();
  Patterns others;
  for (const double value : {0.0, -0.0, 1.0, -1.0, 1.5, 0x1p-3, 0x1.54p-7, 0x1p-14, 0x1p-24, 0x1p-25,
                             0x1.8p-25, 1000.0, 65504.0, -65504.0, 65535.0, 0x1p-126, 0x1p-133, 0x1.FEp127}) {
    others.push_back(EncodeHalf(format(), value));
  }
  others.push_back(static_cast<std::uint16_t>(infinity()));
  others.push_back(static_cast<std::uint16_t>(infinity() | 0x8000));
  others.push_back(static_cast<std::uint16_t>(infinity() | 1));  // a signalling NaN
  for (const std::uint16_t other : others) {
    const Patterns sums = Run(ReduceOp::kSum, {all, Patterns(all.size(), other)});
    const Patterns products = Run(ReduceOp::kProduct, {all, Patterns(all.size(), other)});
    for (std::size_t i = 0; i < all.size(); ++i) {
      const auto a = static_cast<float>(DecodeHalf(format(), all[i]));
      const auto b = static_cast<float>(DecodeHalf(format(), other));
      ASSERT_EQ(sums[i], EncodeHalf(format(), a + b)) << all[i] << " + " << other;
      ASSERT_EQ(products[i], EncodeHalf(format(), a * b)) << all[i] << " * " << other;
    }
  }
}

// Every finite pattern x, and the points between x and the next one y away from zero: the exact
// middle, and the middle give or take a little. They are made as a float32 sum of three inputs: x,
// half of y - x, and the little.
TEST_P(HalfTest, EveryHalfwayCase) {
  const HalfFormat f = format();
  for (const int little_sign : {-1, 0, 1}) {
    Patterns x, half_step, little, expected;
    for (int bits = 0; bits < 0x10000; ++bits) {
      const int magnitude = bits & 0x7FFF;
      if (magnitude >= infinity()) continue;
      const auto pattern = static_cast<std::uint16_t>(bits);
      const double sign = bits >= 0x8000 ? -1.0 : 1.0;
      const double value = DecodeHalf(f, pattern);
      // The step above the largest pattern is that below it: there the middle rounds to infinity.
      const int below = magnitude + 1 == infinity() ? magnitude - 1 : magnitude;
      const double step = DecodeHalf(f, static_cast<std::uint16_t>(below + 1)) -
                          DecodeHalf(f, static_cast<std::uint16_t>(below));
      const double half = sign * step / 2;
      const double bit = little_sign * sign * step / 16;
      // Skip addends that are not representable, since the float32 sum must be exact. With the smallest
      // exponents, no sum lies halfway; quotients do, see EveryHalfwayQuotient.
      if (DecodeHalf(f, EncodeHalf(f, half)) != half || DecodeHalf(f, EncodeHalf(f, bit)) != bit) continue;
      const int up = magnitude + (little_sign > 0 || (little_sign == 0 && magnitude % 2 == 1) ? 1 : 0);
      x.push_back(pattern);
      half_step.push_back(EncodeHalf(f, half));
      little.push_back(EncodeHalf(f, bit));
      expected.push_back(static_cast<std::uint16_t>((bits & 0x8000) | up));
      ASSERT_EQ(EncodeHalf(f, value + half + bit), expected.back()) << "the reference rounds wrong";
    }
    ASSERT_GT(x.size(), 20000u);
    const Patterns result = Run(ReduceOp::kSum, {x, half_step, little});
    for (std::size_t i = 0; i < x.size(); ++i) {
      ASSERT_EQ(result[i], expected[i]) << x[i] << ", " << little_sign;
    }
  }
}

// The middle between every two neighbours, as an average: (x + y) / 2 is exact in float32, for
// subnormals too.
TEST_P(HalfTest, EveryHalfwayQuotient) {
  Patterns x, y, expected;
  for (int bits = 0; bits < 0x10000; ++bits) {
    const int magnitude = bits & 0x7FFF;
    if (magnitude + 1 >= infinity()) continue;
    x.push_back(static_cast<std::uint16_t>(bits));
    y.push_back(static_cast<std::uint16_t>(bits + 1));
    expected.push_back(static_cast<std::uint16_t>(bits + bits % 2));
  }
  // x + y overflows float32 for the largest bfloat16 exponent; there the result is infinity, by definition.
  for (std::size_t i = 0; i < x.size(); ++i) {
    const float sum =
        static_cast<float>(DecodeHalf(format(), x[i])) + static_cast<float>(DecodeHalf(format(), y[i]));
    if (std::isinf(sum)) expected[i] = static_cast<std::uint16_t>(infinity() | (x[i] & 0x8000));
  }
  const Patterns result = Run(ReduceOp::kAverage, {x, y});
  for (std::size_t i = 0; i < x.size(); ++i) ASSERT_EQ(result[i], expected[i]) << x[i];
}

// Rounded once, at the end: 2048 + 1 + 1 is 2050 in float16 only if the intermediate 2049 was not rounded.
TEST_P(HalfTest, AccumulatesInFloat32) {
  const HalfFormat f = format();
  const double big = std::ldexp(1.0, f.mantissa_bits + 1);
  const Patterns many(5, EncodeHalf(f, 1.0));
  for (const int num_inputs : {3, 9, 17, 33, 63}) {
    std::vector<Patterns> inputs(num_inputs, many);
    inputs[0] = Patterns(5, EncodeHalf(f, big));
    EXPECT_EQ(Run(ReduceOp::kSum, inputs), Patterns(5, EncodeHalf(f, big + num_inputs - 1))) << num_inputs;
  }
}

// The factors, too, are applied in float32: every pattern times 1/10, alone and added to another.
TEST_P(HalfTest, EveryPatternScaled) {
  const Patterns all = All();
  for (const double factor : {0.1, -3.0, 0x1p-10, 1e6}) {
    const auto f = static_cast<float>(factor);
    const Patterns before = Run(ReduceOp::kSum, {all}, factor, 1);
    const Patterns after = Run(ReduceOp::kSum, {all}, 1, factor);
    const std::uint16_t other = EncodeHalf(format(), 0.625);
    const Patterns sums = Run(ReduceOp::kSum, {all, Patterns(all.size(), other)}, factor, 1);
    const Patterns scaled_sums = Run(ReduceOp::kSum, {all, Patterns(all.size(), other)}, 1, factor);
    for (std::size_t i = 0; i < all.size(); ++i) {
      const auto x = static_cast<float>(DecodeHalf(format(), all[i]));
      const float product = x * f, other_product = 0.625f * f;
      ASSERT_EQ(before[i], EncodeHalf(format(), product)) << all[i] << " * " << factor;
      ASSERT_EQ(after[i], EncodeHalf(format(), product)) << all[i] << " * " << factor;
      ASSERT_EQ(sums[i], EncodeHalf(format(), product + other_product)) << all[i] << ", " << factor;
      const float sum = x + 0.625f;
      ASSERT_EQ(scaled_sums[i], EncodeHalf(format(), sum * f)) << all[i] << ", " << factor;
    }
  }
}

// Cases in which a rounding to 16 bits before the end shows. u is the last place of 1.
TEST_P(HalfTest, ScaledIsRoundedOnce) {
  const HalfFormat f = format();
  const double u = std::ldexp(1.0, -f.mantissa_bits);
  const auto halves = [&](double value) { return Patterns(5, EncodeHalf(f, value)); };
  // Rounded after prescale, 1.5 (1 + u) would become 1.5 + 2u.
  EXPECT_EQ(Run(ReduceOp::kSum, {halves(1 + u), halves(-1)}, 1.5, 1), halves(1.5 * u));
  // Rounded before postscale, 2/u + 1 would become 2/u.
  EXPECT_EQ(Run(ReduceOp::kSum, {halves(2 / u), halves(1)}, 1, 0.75), halves(1.5 / u + 0.75));
  EXPECT_NE(EncodeHalf(f, 1.5 / u + 0.75), EncodeHalf(f, 1.5 / u));
}

INSTANTIATE_TEST_SUITE_P(Targets, HalfTest,
                         testing::Combine(testing::ValuesIn(RunnableReduceTargets()),
                                          testing::Values(DType::kFloat16, DType::kBFloat16)),
                         [](const auto& info) {
                           return std::string(std::get<0>(info.param).name) + "_" +
                                  DTypeName(std::get<1>(info.param));
                         });

}  // namespace
}  // namespace tf_smddp

// The arithmetic of reductions, and the types that C++ does not have.
#include "tests/pretend_gpu/nccl/reduce.h"

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

#include "gtest/gtest.h"
#include "tests/pretend_gpu/nccl/types.h"

namespace pretend_gpu::nccl {
namespace {

template <class T>
float FloatOfBits(int bits) {
  T value;
  value.bits = static_cast<std::uint16_t>(bits);
  return static_cast<float>(value);
}

// Every value survives, and what lies between two neighbours goes to the nearer one, in the middle to the one
// with an even last bit.
template <class T>
void CheckRounding(int infinity) {
  for (int bits = 0; bits < infinity; bits++) {
    const float low = FloatOfBits<T>(bits), high = FloatOfBits<T>(bits + 1);
    for (const int sign : {1, -1}) {
      const int sign_bit = sign < 0 ? 0x8000 : 0;
      ASSERT_EQ(bits | sign_bit, T(sign < 0 ? -low : low).bits);
      if (std::isinf(high)) continue;
      const float middle = low + (high - low) / 2;
      const auto round = [&](float value) { return T(sign < 0 ? -value : value).bits & 0x7FFF; };
      ASSERT_EQ(bits % 2 == 0 ? bits : bits + 1, round(middle)) << bits;
      ASSERT_EQ(bits, round(std::nextafter(middle, low))) << bits;
      ASSERT_EQ(bits + 1, round(std::nextafter(middle, high))) << bits;
    }
  }
  EXPECT_EQ(infinity, T(std::numeric_limits<float>::infinity()).bits);
  const float nan = static_cast<float>(T(std::numeric_limits<float>::quiet_NaN()));
  EXPECT_TRUE(std::isnan(nan));
}

TEST(Floats, HalfRoundsToTheNearest) {
  CheckRounding<Half>(0x7C00);
  EXPECT_EQ(1.0f, FloatOfBits<Half>(0x3C00));
  EXPECT_EQ(-2.0f, FloatOfBits<Half>(0xC000));
  EXPECT_EQ(65504.0f, FloatOfBits<Half>(0x7BFF));
  EXPECT_EQ(0x7BFF, Half(65519.9f).bits);
  EXPECT_EQ(0x7C00, Half(65520.0f).bits);
  EXPECT_EQ(std::ldexp(1.0f, -24), FloatOfBits<Half>(1));
}

TEST(Floats, Bfloat16RoundsToTheNearest) {
  CheckRounding<Bfloat16>(0x7F80);
  EXPECT_EQ(1.0f, FloatOfBits<Bfloat16>(0x3F80));
  EXPECT_EQ(-2.0f, FloatOfBits<Bfloat16>(0xC000));
}

TEST(Reduce, IntegersWrapAround) {
  std::vector<std::int8_t> total{127, -128, 100};
  const std::vector<std::int8_t> operand{1, -1, 3};
  Combine(ncclInt8, ncclSum, total.data(), operand.data(), 3);
  EXPECT_EQ((std::vector<std::int8_t>{-128, 127, 103}), total);
  Combine(ncclInt8, ncclProd, total.data(), operand.data(), 3);
  EXPECT_EQ((std::vector<std::int8_t>{-128, -127, 53}), total);
  std::int64_t large = std::numeric_limits<std::int64_t>::max();
  const std::int64_t two = 2;
  Combine(ncclInt64, ncclProd, &large, &two, 1);
  EXPECT_EQ(-2, large);
}

TEST(Reduce, AveragesOfIntegersAreCutTowardsZero) {
  std::vector<std::int32_t> totals{7, -7, 6, 0};
  Divide(ncclInt32, totals.data(), totals.size(), 3);
  EXPECT_EQ((std::vector<std::int32_t>{2, -2, 2, 0}), totals);
  std::uint64_t large = std::numeric_limits<std::uint64_t>::max();
  Divide(ncclUint64, &large, 1, 2);
  EXPECT_EQ(std::numeric_limits<std::uint64_t>::max() / 2, large);
}

TEST(Reduce, ALargestOrSmallestOfPoisonIsPoison) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const int op : {ncclMax, ncclMin}) {
    std::vector<float> total{nan, 1};
    const std::vector<float> operand{1, nan};
    Combine(ncclFloat32, op, total.data(), operand.data(), 2);
    EXPECT_TRUE(std::isnan(total[0]) && std::isnan(total[1])) << op;
  }
}

TEST(Reduce, EachStepIsRounded) {
  Half total(2048.0f);
  const Half one(1.0f);
  Combine(ncclFloat16, ncclSum, &total, &one, 1);
  Combine(ncclFloat16, ncclSum, &total, &one, 1);
  EXPECT_EQ(2048.0f, static_cast<float>(total));
}

TEST(Reduce, ScalesByTheScalarOfTheType) {
  double data[] = {1.5, -2};
  Scale(ncclFloat64, data, 2, Reciprocal(ncclFloat64, 4));
  EXPECT_EQ(0.375, data[0]);
  EXPECT_EQ(-0.5, data[1]);
  Scalar three{};
  three[0] = 3;
  std::uint8_t bytes[] = {100, 5};
  Scale(ncclUint8, bytes, 2, three);
  EXPECT_EQ(44, bytes[0]);
  EXPECT_EQ(15, bytes[1]);
}

}  // namespace
}  // namespace pretend_gpu::nccl

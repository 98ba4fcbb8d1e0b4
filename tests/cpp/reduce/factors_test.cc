// prescale and postscale: what they multiply, in which type and order, and that nothing is fused or skipped.
#include <gtest/gtest.h>

#include <complex>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#if defined(__SSE__)
#include <xmmintrin.h>
#endif

#include "kernels/reduce/targets.h"
#include "tests/cpp/reduce/reduced.h"
#include "tests/cpp/reduce/test_data.h"

namespace tf_smddp {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr ReduceOp kOps[] = {ReduceOp::kSum, ReduceOp::kAverage, ReduceOp::kMin, ReduceOp::kMax,
                             ReduceOp::kProduct};

class FactorsTest : public testing::TestWithParam<ReduceTargetInfo> {
 protected:
  template <typename T>
  T Reduced(ReduceOp op, const std::vector<T>& values, double prescale, double postscale) const {
    return tf_smddp::Reduced(GetParam(), op, values, prescale, postscale);
  }
};

// Small integers and powers of two, so that every step is exact.
TEST_P(FactorsTest, EachInputAndTheResult) {
  EXPECT_EQ(Reduced<float>(ReduceOp::kSum, {1, 2, 5}, 2, 0.25), 4);
  EXPECT_EQ(Reduced<float>(ReduceOp::kAverage, {1, 2, 6}, 2, 4), 24);
  EXPECT_EQ(Reduced<float>(ReduceOp::kProduct, {1, 2, 5}, 2, 0.5), 40);  // 2^3 from the inputs
  EXPECT_EQ(Reduced<float>(ReduceOp::kMin, {1, 2, 5}, -1, 4), -20);      // of the scaled inputs
  EXPECT_EQ(Reduced<float>(ReduceOp::kMax, {1, 2, 5}, -1, 4), -4);
  EXPECT_EQ(Reduced<double>(ReduceOp::kSum, {1, 2, 5}, 2, 0.25), 4);
  EXPECT_EQ(Reduced<std::complex<float>>(ReduceOp::kSum, {{1, 2}, {3, 5}}, 2, 4),
            std::complex<float>(32, 56));
  EXPECT_EQ(Reduced<std::complex<double>>(ReduceOp::kProduct, {{1, 2}, {3, 4}}, 2, 0.5),
            std::complex<double>(-10, 20));
}

TEST_P(FactorsTest, OneInputIsScaledNotCopied) {
  for (const ReduceOp op : kOps) {
    EXPECT_EQ(Reduced<float>(op, {3}, 2, 1), 6) << ReduceOpName(op);
    EXPECT_EQ(Reduced<float>(op, {3}, 1, 2), 6) << ReduceOpName(op);
    EXPECT_EQ(Reduced<double>(op, {3}, 2, 2), 12) << ReduceOpName(op);
    EXPECT_EQ(BitsOf(Reduced<float>(op, {FromBits(0xFFC12345)}, 2, 1)), kNaN32) << ReduceOpName(op);
    EXPECT_EQ(BitsOf(Reduced<float>(op, {FromBits(0xFFC12345)}, 1, 1)), 0xFFC12345u) << "a copy";
  }
  EXPECT_EQ(Reduced<std::complex<float>>(ReduceOp::kProduct, {{3, 4}}, 2, 1), std::complex<float>(6, 8));
}

TEST_P(FactorsTest, AreCastToTheAccumulatorsType) {
  EXPECT_EQ(Reduced<float>(ReduceOp::kSum, {1, 0}, 0.1, 1), 0.1f);
  EXPECT_EQ(Reduced<float>(ReduceOp::kSum, {9, 0}, 0.1, 1), 9 * 0.1f);  // not float(9 * 0.1)
  EXPECT_NE(9 * 0.1f, static_cast<float>(9 * 0.1));
  EXPECT_EQ(Reduced<float>(ReduceOp::kSum, {9, 0}, 1, 0.1), 9 * 0.1f);
  EXPECT_EQ(Reduced<double>(ReduceOp::kSum, {9, 0}, 0.1, 1), 9 * 0.1);
  EXPECT_EQ(Reduced<std::complex<float>>(ReduceOp::kProduct, {{9, 0}}, 0.1, 1).real(), 9 * 0.1f);
}

// Each of these would give another result if two of the steps were made one.
TEST_P(FactorsTest, EachStepIsRounded) {
  // Division, then postscale; neither the factors as one, nor the other order.
  const float third = 1.0f / 3;
  EXPECT_EQ(BitsOf(Reduced<float>(ReduceOp::kAverage, {1, 0, 0}, 1, 0.3)), BitsOf(third * 0.3f));
  EXPECT_NE(third * 0.3f, 0.3f / 3);
  // Prescale and division by a power of two: the product overflows before.
  EXPECT_EQ(Reduced<float>(ReduceOp::kAverage, {0x1p127f, 0}, 2, 1), kInf);
  EXPECT_EQ(Reduced<float>(ReduceOp::kSum, {0x1p127f, 0}, 2, 0.5), kInf);
  // Division by a power of two and postscale: the quotient is subnormal and loses its last bit.
  EXPECT_EQ(Reduced<float>(ReduceOp::kAverage, {0x1.000002p-126f, 0}, 1, 2), 0x1p-126f);
}

// x * p is 1 + 2^-11 + 2^-24, a tie, which is rounded down. Fused with the addition it would keep the 2^-24.
TEST_P(FactorsTest, MultiplicationIsNotFusedWithAddition) {
  const float x = 1 + 0x1p-12f;
  EXPECT_EQ(Reduced<float>(ReduceOp::kSum, {-x, x}, 1 + 0x1p-12, 1), 0);
  EXPECT_EQ(Reduced<float>(ReduceOp::kSum, {x, -x}, 1 + 0x1p-12, 1), 0);
  const double y = 1 + 0x1p-27;
  EXPECT_EQ(Reduced<double>(ReduceOp::kSum, {-y, y}, 1 + 0x1p-27, 1), 0);
  EXPECT_EQ(Reduced<std::complex<float>>(ReduceOp::kSum, {{-x, x}, {x, -x}}, 1 + 0x1p-12, 1),
            std::complex<float>(0, 0));
}

TEST_P(FactorsTest, ZeroTimesInfinityIsTheOneNaN) {
  for (const ReduceOp op : kOps) {
    EXPECT_EQ(BitsOf(Reduced<float>(op, {kInf, 1}, 0, 1)), kNaN32) << ReduceOpName(op);
    EXPECT_EQ(BitsOf(Reduced<double>(op, {kInf, kInf}, 1, 0)), kNaN64) << ReduceOpName(op);
  }
}

#if defined(__SSE__)
TEST_P(FactorsTest, IgnoreTheThreadsFloatEnvironment) {
  constexpr unsigned kFlush = 0x8040;
  const unsigned before = _mm_getcsr();
  _mm_setcsr(before | kFlush);
  const float alone = Reduced<float>(ReduceOp::kSum, {0x1p-120f}, 0x1p-20, 1);
  const float result = Reduced<float>(ReduceOp::kSum, {0x1p-120f, 0x1p-120f}, 1, 0x1p-20);
  const auto product =
      Reduced<std::complex<float>>(ReduceOp::kProduct, {{0x1p-120f, 0}, {0x1p-20f, 0}}, 1, 1);
  _mm_setcsr(before);
  EXPECT_EQ(BitsOf(alone), BitsOf(0x1p-140f));
  EXPECT_EQ(BitsOf(result), BitsOf(0x1p-139f));
  EXPECT_EQ(BitsOf(product.real()), BitsOf(0x1p-140f));
}
#endif

INSTANTIATE_TEST_SUITE_P(Targets, FactorsTest, testing::ValuesIn(RunnableReduceTargets()),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace tf_smddp

// Complex numbers: sums by parts, the product's formula, and what it gives for infinities and NaNs.
#include <gtest/gtest.h>

#include <complex>
#include <limits>
#include <string>
#include <vector>

#include "kernels/reduce/targets.h"
#include "tests/cpp/reduce/reduced.h"
#include "tests/cpp/reduce/test_data.h"

namespace tf_smddp {
namespace {

using Complex64 = std::complex<float>;
using Complex128 = std::complex<double>;

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

class ComplexTest : public testing::TestWithParam<ReduceTargetInfo> {
 protected:
  template <typename T>
  T Reduced(ReduceOp op, const std::vector<T>& values) const {
    return tf_smddp::Reduced(GetParam(), op, values);
  }

  void ExpectProduct(const std::vector<Complex64>& values, std::uint32_t re, std::uint32_t im) const {
    const Complex64 product = Reduced(ReduceOp::kProduct, values);
    EXPECT_EQ(BitsOf(product.real()), re) << product;
    EXPECT_EQ(BitsOf(product.imag()), im) << product;
  }
};

TEST_P(ComplexTest, Values) {
  EXPECT_EQ(Reduced<Complex64>(ReduceOp::kSum, {{1, 2}, {3, -4}, {0, 8}}), Complex64(4, 6));
  EXPECT_EQ(Reduced<Complex64>(ReduceOp::kAverage, {{1, 2}, {5, -4}, {0, 8}}), Complex64(2, 2));
  EXPECT_EQ(Reduced<Complex64>(ReduceOp::kProduct, {{1, 2}, {3, 4}}), Complex64(-5, 10));
  EXPECT_EQ(Reduced<Complex64>(ReduceOp::kProduct, {{1, 2}, {3, 4}, {0, 1}}), Complex64(-10, -5));
  EXPECT_EQ(Reduced<Complex128>(ReduceOp::kSum, {{1, 2}, {3, -4}, {0, 8}}), Complex128(4, 6));
  EXPECT_EQ(Reduced<Complex128>(ReduceOp::kAverage, {{1, 2}, {5, -4}, {0, 8}}), Complex128(2, 2));
  EXPECT_EQ(Reduced<Complex128>(ReduceOp::kProduct, {{1, 2}, {3, 4}, {0, 1}}), Complex128(-10, -5));
}

// (2^64 * 2^64) overflows, whatever comes after; (2^64 * 2^-64) * 2^64 does not.
TEST_P(ComplexTest, MultipliesInIndexOrder) {
  const Complex64 big(0x1p64f, 0), small(0x1p-64f, 0);
  EXPECT_EQ(Reduced<Complex64>(ReduceOp::kProduct, {big, small, big}), big);
  EXPECT_EQ(Reduced<Complex64>(ReduceOp::kProduct, {big, big, small}).real(), kInf);
}

// x * x is a tie; fused with the subtraction, its rounding error would be left over.
TEST_P(ComplexTest, ProductsAreRoundedBeforeTheyAreAdded) {
  const float x = 1 + 0x1p-12f;
  EXPECT_EQ(Reduced<Complex64>(ReduceOp::kProduct, {{x, x}, {x, x}}).real(), 0);
  EXPECT_EQ(Reduced<Complex64>(ReduceOp::kProduct, {{x, -x}, {x, x}}).imag(), 0);
  const double y = 1 + 0x1p-27;
  EXPECT_EQ(Reduced<Complex128>(ReduceOp::kProduct, {{y, y}, {y, y}}).real(), 0);
  EXPECT_EQ(Reduced<Complex128>(ReduceOp::kProduct, {{y, -y}, {y, y}}).imag(), 0);
}

// Float components: the sum of two products that double would hold.
TEST_P(ComplexTest, PartsAreNotWidened) {
  const Complex64 square =
      Reduced<Complex64>(ReduceOp::kProduct, {{0x1p100f, 0x1p100f}, {0x1p100f, 0x1p100f}});
  EXPECT_EQ(BitsOf(square.real()), kNaN32);  // inf - inf
  EXPECT_EQ(square.imag(), kInf);
  EXPECT_EQ(Reduced<Complex128>(ReduceOp::kProduct, {{0x1p100, 0x1p100}, {0x1p100, 0x1p100}}),
            Complex128(0, 0x1p201));
}

TEST_P(ComplexTest, TheProductDoesNothingAboutInfinities) {
  const std::uint32_t inf = BitsOf(kInf), minus_inf = BitsOf(-kInf);
  ExpectProduct({{kInf, 0}, {1, 0}}, inf, kNaN32);        // im: inf * 0 + 0 * 1
  ExpectProduct({{kInf, kInf}, {1, 0}}, kNaN32, kNaN32);  // std::complex gives inf + inf i
  ExpectProduct({{kInf, 1}, {2, 3}}, inf, inf);
  ExpectProduct({{1, kInf}, {2, 3}}, minus_inf, inf);
}

TEST_P(ComplexTest, NaNsAreCanonicalByPart) {
  for (const float nan : {kNaN, -kNaN, FromBits(0x7F800001), FromBits(0xFFC12345)}) {
    for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kAverage}) {
      const Complex64 in_re = Reduced<Complex64>(op, {{1, 4}, {nan, 2}});
      EXPECT_EQ(BitsOf(in_re.real()), kNaN32);
      EXPECT_EQ(in_re.imag(), op == ReduceOp::kSum ? 6 : 3);
      const Complex64 in_im = Reduced<Complex64>(op, {{1, nan}, {3, 2}});
      EXPECT_EQ(in_im.real(), op == ReduceOp::kSum ? 4 : 2);
      EXPECT_EQ(BitsOf(in_im.imag()), kNaN32);
    }
    ExpectProduct({{nan, 1}, {2, 3}}, kNaN32, kNaN32);
    ExpectProduct({{2, 3}, {1, nan}}, kNaN32, kNaN32);
  }
  const Complex128 sum = Reduced<Complex128>(ReduceOp::kSum, {{kInf, 1}, {-kInf, 1}});
  EXPECT_EQ(BitsOf(sum.real()), kNaN64);
  EXPECT_EQ(sum.imag(), 2);
  const Complex128 product = Reduced<Complex128>(ReduceOp::kProduct, {{-kNaN, 1}, {2, 3}});
  EXPECT_EQ(BitsOf(product.real()), kNaN64);
  EXPECT_EQ(BitsOf(product.imag()), kNaN64);
}

INSTANTIATE_TEST_SUITE_P(Targets, ComplexTest, testing::ValuesIn(RunnableReduceTargets()),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace tf_smddp

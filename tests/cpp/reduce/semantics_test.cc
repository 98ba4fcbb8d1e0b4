// What reduce.h promises beyond values: equal bits however a range is cut, and in any floating-point
// environment of the thread; NaN, signed zeros, subnormals; integer averages at the limits.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#if defined(__SSE__)
#include <xmmintrin.h>
#endif

#include "kernels/reduce/targets.h"
#include "tests/cpp/reduce/test_data.h"

namespace tf_smddp {
namespace {

using Bytes = std::vector<unsigned char>;

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

template <typename T>
struct TypeOf;
template <>
struct TypeOf<float> {
  static constexpr DType value = DType::kFloat32;
  using Bits = std::uint32_t;
};
template <>
struct TypeOf<double> {
  static constexpr DType value = DType::kFloat64;
  using Bits = std::uint64_t;
};
template <>
struct TypeOf<std::int32_t> {
  static constexpr DType value = DType::kInt32;
};
template <>
struct TypeOf<std::int64_t> {
  static constexpr DType value = DType::kInt64;
};
template <>
struct TypeOf<std::uint8_t> {
  static constexpr DType value = DType::kUInt8;
};

template <typename T>
typename TypeOf<T>::Bits BitsOf(T value) {
  typename TypeOf<T>::Bits bits;
  std::memcpy(&bits, &value, sizeof(bits));
  return bits;
}

float FromBits(std::uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

class SemanticsTest : public testing::TestWithParam<ReduceTargetInfo> {
 protected:
  // Reduces one element, given its inputs. It is repeated over a few vectors and a tail, which must agree.
  template <typename T>
  T Reduced(ReduceOp op, const std::vector<T>& values) const {
    constexpr std::size_t kCount = 333;
    std::vector<std::vector<T>> inputs;
    std::vector<const void*> in;
    for (T value : values) inputs.emplace_back(kCount, value);
    for (const std::vector<T>& input : inputs) in.push_back(input.data());
    std::vector<T> result(kCount);
    void* out = result.data();
    ReduceOn(GetParam(), TypeOf<T>::value, op, in.data(), static_cast<int>(in.size()), &out, 1, kCount);
    for (const T& r : result) EXPECT_EQ(std::memcmp(&r, &result[0], sizeof(T)), 0);
    return result[0];
  }

  // Reduces the ranges that end at `ends`, one call each.
  Bytes ReducedInPieces(DType dtype, ReduceOp op, const std::vector<Bytes>& inputs,
                        const std::vector<std::size_t>& ends) const {
    Bytes result(inputs[0].size());
    std::size_t begin = 0;
    for (const std::size_t end : ends) {
      const std::size_t offset = begin * DTypeBytes(dtype);
      std::vector<const void*> in;
      for (const Bytes& input : inputs) in.push_back(input.data() + offset);
      void* out = result.data() + offset;
      ReduceOn(GetParam(), dtype, op, in.data(), static_cast<int>(in.size()), &out, 1, end - begin);
      begin = end;
    }
    return result;
  }
};

TEST_P(SemanticsTest, CutsDoNotChangeBits) {
  constexpr std::size_t kCount = 3001;
  std::mt19937_64 rng(3);
  for (int t = 0; t < kNumDTypes; ++t) {
    for (int o = 0; o < kNumReduceOps; ++o) {
      const auto dtype = static_cast<DType>(t);
      const auto op = static_cast<ReduceOp>(o);
      if (!ReduceOpDefined(dtype, op)) continue;
      for (const int num_inputs : {2, 3, 8, 19}) {
        std::vector<Bytes> inputs;
        for (int i = 0; i < num_inputs; ++i) inputs.push_back(RandomElements(dtype, kCount, &rng));
        const Bytes whole = ReducedInPieces(dtype, op, inputs, {kCount});
        for (int trial = 0; trial < 8; ++trial) {
          std::vector<std::size_t> ends;
          for (std::size_t end = 0; end < kCount;) {
            end = std::min<std::size_t>(kCount, end + 1 + rng() % (trial < 4 ? 40 : 900));
            ends.push_back(end);
          }
          ASSERT_EQ(ReducedInPieces(dtype, op, inputs, ends), whole)
              << DTypeName(dtype) << " " << ReduceOpName(op) << ", " << num_inputs << " inputs";
        }
      }
    }
  }
}

// Not the same as any pairwise or blocked order, nor with an accumulator of more bits.
TEST_P(SemanticsTest, AddsInIndexOrder) {
  EXPECT_EQ(Reduced<float>(ReduceOp::kSum, {0x1p24f, 1, 1, -0x1p24f}), 0);
  EXPECT_EQ(Reduced<float>(ReduceOp::kSum, {1, 1, 0x1p24f, -0x1p24f}), 2);
  std::vector<float> values(20, 1.0f);
  values[9] = 0x1p24f;  // in the second group of inputs; the 9 before it were added, the 10 after it are lost
  values.push_back(-0x1p24f);
  EXPECT_EQ(Reduced<float>(ReduceOp::kSum, values), 0x1p24f + 9 - 0x1p24f);
}

// By 3 or 7 the product with the rounded reciprocal often has another last bit.
TEST_P(SemanticsTest, AverageIsADivision) {
  std::mt19937 rng(4);
  std::uniform_real_distribution<float> uniform(-1, 1);
  for (int num_inputs = 2; num_inputs <= 64; ++num_inputs) {
    for (int trial = 0; trial < 20; ++trial) {
      std::vector<float> values(num_inputs, 0.0f);
      values[trial % num_inputs] = uniform(rng) * (trial < 10 ? 1.0f : 0x1p-130f);  // subnormal from 10 on
      const float expected = values[trial % num_inputs] / static_cast<float>(num_inputs);
      ASSERT_EQ(BitsOf(Reduced<float>(ReduceOp::kAverage, values)), BitsOf(expected + 0.0f)) << num_inputs;
    }
  }
}

TEST_P(SemanticsTest, EveryNaNIsTheSame) {
  const float nans[] = {kNaN, -kNaN, FromBits(0x7F800001), FromBits(0xFFC12345), FromBits(0x7FFFFFFF)};
  for (const float nan : nans) {
    for (int o = 0; o < kNumReduceOps; ++o) {
      const auto op = static_cast<ReduceOp>(o);
      for (const std::vector<float>& values : {std::vector<float>{nan, 1, 2},
                                               {1, nan, 2},
                                               {1, 2, nan},
                                               {-kInf, nan},
                                               {nan, kInf},
                                               {nan, kNaN}}) {
        EXPECT_EQ(BitsOf(Reduced<float>(op, values)), 0x7FC00000u) << ReduceOpName(op);
      }
    }
  }
  EXPECT_EQ(BitsOf(Reduced<float>(ReduceOp::kSum, {kInf, -kInf})), 0x7FC00000u);
  EXPECT_EQ(BitsOf(Reduced<float>(ReduceOp::kProduct, {kInf, 0})), 0x7FC00000u);
  EXPECT_EQ(BitsOf(Reduced<double>(ReduceOp::kSum, {kInf, -kInf, 1})), 0x7FF8000000000000u);
  EXPECT_EQ(BitsOf(Reduced<double>(ReduceOp::kMin, {1, -kNaN, 0})), 0x7FF8000000000000u);
}

TEST_P(SemanticsTest, EqualZerosKeepTheFirst) {
  for (const ReduceOp op : {ReduceOp::kMin, ReduceOp::kMax}) {
    EXPECT_EQ(BitsOf(Reduced<float>(op, {0.0f, -0.0f})), 0u);
    EXPECT_EQ(BitsOf(Reduced<float>(op, {-0.0f, 0.0f})), 0x80000000u);
    EXPECT_EQ(BitsOf(Reduced<double>(op, {-0.0, 0.0})), std::uint64_t{1} << 63);
  }
}

TEST_P(SemanticsTest, IntegerAverages) {
  constexpr auto kMin32 = std::numeric_limits<std::int32_t>::min();
  constexpr auto kMax32 = std::numeric_limits<std::int32_t>::max();
  constexpr auto kMin64 = std::numeric_limits<std::int64_t>::min();
  constexpr auto kMax64 = std::numeric_limits<std::int64_t>::max();
  EXPECT_EQ(Reduced<std::int32_t>(ReduceOp::kAverage, {-1, -2}), -1);  // toward zero
  EXPECT_EQ(Reduced<std::int64_t>(ReduceOp::kAverage, {-1, -2}), -1);
  for (int n = 2; n <= 64; ++n) {
    EXPECT_EQ(Reduced(ReduceOp::kAverage, std::vector<std::int32_t>(n, kMax32)), kMax32);
    EXPECT_EQ(Reduced(ReduceOp::kAverage, std::vector<std::int32_t>(n, kMin32)), kMin32);
    EXPECT_EQ(Reduced(ReduceOp::kAverage, std::vector<std::int64_t>(n, kMax64)), kMax64);
    EXPECT_EQ(Reduced(ReduceOp::kAverage, std::vector<std::int64_t>(n, kMin64)), kMin64);
    EXPECT_EQ(Reduced(ReduceOp::kAverage, std::vector<std::uint8_t>(n, 255)), 255);
    // One short of a multiple: the quotient that rounding could most easily push to the next integer.
    std::vector<std::int32_t> most(n, kMax32);
    most[n / 2] -= 1;
    EXPECT_EQ(Reduced(ReduceOp::kAverage, most), kMax32 - 1);
    std::vector<std::int32_t> least(n, kMin32);
    least[n / 2] += 1;
    EXPECT_EQ(Reduced(ReduceOp::kAverage, least), kMin32 + 1);
    std::vector<std::uint8_t> bytes(n, 255);
    bytes[n / 2] -= 1;
    EXPECT_EQ(Reduced(ReduceOp::kAverage, bytes), 254);
  }
}

// Every possible sum of uint8, over every number of inputs.
TEST_P(SemanticsTest, EveryUInt8Quotient) {
  for (int n = 2; n <= 64; ++n) {
    const std::size_t count = 255 * static_cast<std::size_t>(n) + 1;
    std::vector<Bytes> inputs(n, Bytes(count));
    for (std::size_t sum = 0; sum < count; ++sum) {
      for (int i = 0; i < n; ++i) {
        inputs[i][sum] = static_cast<unsigned char>(sum / n + (i < static_cast<int>(sum % n) ? 1 : 0));
      }
    }
    const Bytes result = ReducedInPieces(DType::kUInt8, ReduceOp::kAverage, inputs, {count});
    for (std::size_t sum = 0; sum < count; ++sum) ASSERT_EQ(result[sum], sum / n) << sum << " / " << n;
  }
}

#if defined(__SSE__)
// TensorFlow's executor threads flush subnormals to zero.
TEST_P(SemanticsTest, IgnoresTheThreadsFloatEnvironment) {
  constexpr unsigned kFlush = 0x8040, kTowardZero = 0x6000;
  const unsigned before = _mm_getcsr();
  const float tiny = 0x1p-140f;
  for (const unsigned bits : {kFlush, kTowardZero, kFlush | kTowardZero}) {
    _mm_setcsr(before | bits);
    const float sum = Reduced<float>(ReduceOp::kSum, {tiny, tiny});
    const float third = Reduced<float>(ReduceOp::kAverage, {2, 0, 0});
    const float min = Reduced<float>(ReduceOp::kMin, {1, tiny});
    const unsigned after = _mm_getcsr();
    _mm_setcsr(before);
    EXPECT_EQ(BitsOf(sum), BitsOf(0x1p-139f));
    EXPECT_EQ(BitsOf(third), BitsOf(0x1.555556p-1f));
    EXPECT_EQ(BitsOf(min), BitsOf(tiny));
    EXPECT_EQ(after & 0xFFC0, (before | bits) & 0xFFC0) << "the thread's own setting must come back";
  }
}
#endif

INSTANTIATE_TEST_SUITE_P(Targets, SemanticsTest, testing::ValuesIn(RunnableReduceTargets()),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace tf_smddp

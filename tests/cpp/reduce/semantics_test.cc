// Tests the promises of reduce.h beyond values: equal bits for any division of the range and in any
// floating-point environment of the thread; NaN, signed zeros and subnormals.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

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
#include "tests/cpp/reduce/reduced.h"
#include "tests/cpp/reduce/test_data.h"

namespace tf_smddp {
namespace {

using Bytes = std::vector<unsigned char>;

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

class SemanticsTest : public testing::TestWithParam<ReduceTargetInfo> {
 protected:
  template <typename T>
  T Reduced(ReduceOp op, const std::vector<T>& values) const {
    return tf_smddp::Reduced(GetParam(), op, values);
  }

  // Reduces the ranges that end at `ends`, one call each.
  Bytes ReducedInPieces(const Reduction& reduction, const std::vector<Bytes>& inputs,
                        const std::vector<std::size_t>& ends) const {
    Bytes result(inputs[0].size());
    std::size_t begin = 0;
    for (const std::size_t end : ends) {
      const std::size_t offset = begin * DTypeBytes(reduction.dtype);
      std::vector<const void*> in;
      for (const Bytes& input : inputs) in.push_back(input.data() + offset);
      void* out = result.data() + offset;
      ReduceOn(GetParam(), reduction, in.data(), static_cast<int>(in.size()), &out, 1, end - begin);
      begin = end;
    }
    return result;
  }
};

TEST_P(SemanticsTest, CutsDoNotChangeBits) {
  constexpr std::size_t kCount = 3001;
  std::mt19937_64 rng(3);
  std::vector<Reduction> reductions;
  for (int t = 0; t < kNumDTypes; ++t) {
    for (int o = 0; o < kNumReduceOps; ++o) {
      const auto dtype = static_cast<DType>(t);
      const auto op = static_cast<ReduceOp>(o);
      if (!ReduceOpDefined(dtype, op)) continue;
      reductions.push_back({dtype, op});
      if (IsInexact(dtype)) reductions.push_back({dtype, op, 0.3, 0.7});
    }
  }
  for (const Reduction& reduction : reductions) {
    for (const int num_inputs : {2, 3, 8, 19}) {
      std::vector<Bytes> inputs;
      for (int i = 0; i < num_inputs; ++i) inputs.push_back(RandomElements(reduction.dtype, kCount, &rng));
      const Bytes whole = ReducedInPieces(reduction, inputs, {kCount});
      for (int trial = 0; trial < 8; ++trial) {
        std::vector<std::size_t> ends;
        for (std::size_t end = 0; end < kCount;) {
          end = std::min<std::size_t>(kCount, end + 1 + rng() % (trial < 4 ? 40 : 900));
          ends.push_back(end);
        }
        ASSERT_EQ(ReducedInPieces(reduction, inputs, ends), whole)
            << DTypeName(reduction.dtype) << " " << ReduceOpName(reduction.op) << " with factors "
            << reduction.prescale << " and " << reduction.postscale << ", " << num_inputs << " inputs";
      }
    }
  }
}

// A page that is followed by memory that must not be touched.
class LastPage {
 public:
  LastPage() : page_(static_cast<std::size_t>(::sysconf(_SC_PAGESIZE))) {
    void* const data = ::mmap(nullptr, 2 * page_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    EXPECT_NE(data, MAP_FAILED);
    end_ = static_cast<unsigned char*>(data) + page_;
    EXPECT_EQ(::mprotect(end_, page_, PROT_NONE), 0);
  }
  ~LastPage() { ::munmap(end_ - page_, 2 * page_); }
  LastPage(const LastPage&) = delete;
  LastPage& operator=(const LastPage&) = delete;

  unsigned char* end() const { return end_; }

 private:
  const std::size_t page_;
  unsigned char* end_ = nullptr;
};

TEST_P(SemanticsTest, TouchesNothingBehindTheEnd) {
  const LastPage pages[4];
  for (int t = 0; t < kNumDTypes; ++t) {
    const auto dtype = static_cast<DType>(t);
    const ReduceOp op = ReduceOpDefined(dtype, ReduceOp::kSum) ? ReduceOp::kSum : ReduceOp::kMax;
    const std::size_t element = DTypeBytes(dtype);
    for (std::size_t count = 1; count <= 1 + 5 * 64 / element; ++count) {
      for (const int num_outputs : {1, 2}) {
        const std::size_t bytes = count * element;
        const void* in[2] = {pages[0].end() - bytes, pages[1].end() - bytes};
        void* out[2] = {pages[2].end() - bytes, pages[3].end() - bytes};
        std::memset(out[0], 1, bytes);
        ReduceOn(GetParam(), {dtype, op}, in, 2, out, num_outputs, count);
        EXPECT_EQ(std::count(pages[2].end() - bytes, pages[2].end(), 0), static_cast<std::ptrdiff_t>(bytes));
      }
    }
  }
}

// The results differ from those of every pairwise or blocked order, and of a wider accumulator.
TEST_P(SemanticsTest, AddsInIndexOrder) {
  EXPECT_EQ(Reduced<float>(ReduceOp::kSum, {0x1p24f, 1, 1, -0x1p24f}), 0);
  EXPECT_EQ(Reduced<float>(ReduceOp::kSum, {1, 1, 0x1p24f, -0x1p24f}), 2);
  std::vector<float> values(20, 1.0f);
  values[9] = 0x1p24f;  // in the second group of inputs; the 9 before it were added, the 10 after it are lost
  values.push_back(-0x1p24f);
  EXPECT_EQ(Reduced<float>(ReduceOp::kSum, values), 0x1p24f + 9 - 0x1p24f);
}

// With 3 or 7 inputs, a multiplication by the rounded reciprocal would often give another last bit.
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
        EXPECT_EQ(BitsOf(Reduced<float>(op, values)), kNaN32) << ReduceOpName(op);
      }
    }
  }
  EXPECT_EQ(BitsOf(Reduced<float>(ReduceOp::kSum, {kInf, -kInf})), kNaN32);
  EXPECT_EQ(BitsOf(Reduced<float>(ReduceOp::kProduct, {kInf, 0})), kNaN32);
  EXPECT_EQ(BitsOf(Reduced<double>(ReduceOp::kSum, {kInf, -kInf, 1})), kNaN64);
  EXPECT_EQ(BitsOf(Reduced<double>(ReduceOp::kMin, {1, -kNaN, 0})), kNaN64);
}

TEST_P(SemanticsTest, EqualZerosKeepTheFirst) {
  for (const ReduceOp op : {ReduceOp::kMin, ReduceOp::kMax}) {
    EXPECT_EQ(BitsOf(Reduced<float>(op, {0.0f, -0.0f})), 0u);
    EXPECT_EQ(BitsOf(Reduced<float>(op, {-0.0f, 0.0f})), 0x80000000u);
    EXPECT_EQ(BitsOf(Reduced<double>(op, {-0.0, 0.0})), std::uint64_t{1} << 63);
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

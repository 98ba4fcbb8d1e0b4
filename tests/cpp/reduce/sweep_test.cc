// Every target against the reference: all types, operations, numbers of inputs and outputs, sizes,
// misalignments, in place and not.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "kernels/reduce/reduce.h"
#include "kernels/reduce/targets.h"
#include "tests/cpp/reduce/reference.h"
#include "tests/cpp/reduce/test_data.h"

namespace tf_smddp {
namespace {

using Bytes = std::vector<unsigned char>;

constexpr std::size_t kAlignment = 64;
constexpr unsigned char kGuard = 0xA5;  // bytes before and after each buffer

// The distance of the first element from a multiple of kAlignment, in elements. `step` gives each buffer
// another distance.
struct Misalignment {
  std::size_t first, step;
};
constexpr Misalignment kMisalignments[] = {{0, 0}, {1, 0}, {3, 1}};

// Elements at a chosen misalignment, between guards.
class Buffer {
 public:
  Buffer(std::size_t bytes, std::size_t misalignment_bytes)
      : bytes_(bytes), storage_(new unsigned char[bytes + 4 * kAlignment]) {
    const auto address = reinterpret_cast<std::uintptr_t>(storage_.get());
    begin_ = kAlignment + (kAlignment - address % kAlignment) % kAlignment + misalignment_bytes % kAlignment;
    std::memset(storage_.get(), kGuard, bytes + 4 * kAlignment);
  }
  unsigned char* data() { return storage_.get() + begin_; }
  bool GuardsIntact() const {
    const auto intact = [](unsigned char c) { return c == kGuard; };
    const unsigned char* storage = storage_.get();
    return std::all_of(storage, storage + begin_, intact) &&
           std::all_of(storage + begin_ + bytes_, storage + bytes_ + 4 * kAlignment, intact);
  }

 private:
  std::size_t bytes_;
  std::size_t begin_;
  std::unique_ptr<unsigned char[]> storage_;
};

class SweepTest : public testing::TestWithParam<std::tuple<ReduceTargetInfo, DType>> {
 protected:
  // Outputs in place are the inputs at these positions, rotated so that they are not always the first.
  void Check(const Reduction& reduction, const std::vector<Bytes>& inputs, const Bytes& expected,
             std::size_t count, int num_outputs, Misalignment misalignment, bool in_place) {
    const ReduceTargetInfo& target = std::get<0>(GetParam());
    const std::size_t element_bytes = DTypeBytes(reduction.dtype);
    const std::size_t bytes = count * element_bytes;
    std::vector<Buffer> buffers;
    const auto add = [&] {
      const std::size_t shift = misalignment.first + buffers.size() * misalignment.step;
      buffers.emplace_back(bytes, shift * element_bytes);
      return buffers.back().data();
    };
    const std::size_t num_inputs = inputs.size();
    std::vector<const void*> in;
    std::vector<void*> out;
    for (const Bytes& input : inputs) {
      unsigned char* data = add();
      if (bytes != 0) std::memcpy(data, input.data(), bytes);
      in.push_back(data);
    }
    for (int k = 0; k < num_outputs; ++k) {
      const std::size_t position = (num_inputs / 2 + k) % num_inputs;
      const bool aliases = in_place && static_cast<std::size_t>(k) < num_inputs;
      out.push_back(aliases ? const_cast<void*>(in[position]) : add());
    }
    ReduceOn(target, reduction, in.data(), static_cast<int>(num_inputs), out.data(), num_outputs, count);
    for (int k = 0; k < num_outputs; ++k) {
      if (bytes == 0) break;
      ASSERT_EQ(std::memcmp(out[k], expected.data(), bytes), 0)
          << "output " << k << ", first difference at element " << FirstDifference(out[k], expected);
    }
    for (std::size_t i = 0; i < num_inputs; ++i) {
      if (bytes == 0 || std::find(out.begin(), out.end(), in[i]) != out.end()) continue;
      ASSERT_EQ(std::memcmp(in[i], inputs[i].data(), bytes), 0) << "input " << i << " was changed";
    }
    for (const Buffer& buffer : buffers) ASSERT_TRUE(buffer.GuardsIntact()) << "wrote outside a buffer";
  }

  static std::size_t FirstDifference(const void* actual, const Bytes& expected) {
    const auto* bytes = static_cast<const unsigned char*>(actual);
    const auto at = std::mismatch(expected.begin(), expected.end(), bytes).first - expected.begin();
    return static_cast<std::size_t>(at) / DTypeBytes(std::get<1>(GetParam()));
  }
};

TEST_P(SweepTest, EqualsReference) {
  const DType dtype = std::get<1>(GetParam());
  std::mt19937_64 rng(1);
  for (int o = 0; o < kNumReduceOps; ++o) {
    const auto op = static_cast<ReduceOp>(o);
    if (!ReduceOpDefined(dtype, op)) continue;
    for (const int num_inputs : {1, 2, 3, 4, 5, 6, 7, 8, 9, 16, 17}) {
      for (const std::size_t count : {0, 1, 2, 7, 8, 9, 31, 64, 97, 1000}) {
        std::vector<Bytes> inputs;
        for (int i = 0; i < num_inputs; ++i) inputs.push_back(RandomElements(dtype, count, &rng));
        const Bytes expected = ReferenceReduce({dtype, op}, inputs, count);
        for (const int num_outputs : {1, 2, 3}) {
          for (const Misalignment& misalignment : kMisalignments) {
            for (const bool in_place : {false, true}) {
              SCOPED_TRACE(testing::Message()
                           << ReduceOpName(op) << ", " << num_inputs << " inputs, " << num_outputs
                           << " outputs, count " << count << ", misaligned by " << misalignment.first << "+k*"
                           << misalignment.step << (in_place ? ", in place" : ""));
              for (const bool past_cache : {false, true}) {
                Check({dtype, op, 1.0, 1.0, past_cache}, inputs, expected, count, num_outputs, misalignment,
                      in_place);
                if (HasFatalFailure()) return;
              }
            }
          }
        }
      }
    }
  }
}

// There are more outputs than one pass writes; the others are copies.
TEST_P(SweepTest, ManyOutputs) {
  const DType dtype = std::get<1>(GetParam());
  const ReduceOp op = ReduceOpDefined(dtype, ReduceOp::kMax) ? ReduceOp::kMax : ReduceOp::kProduct;
  std::mt19937_64 rng(2);
  for (const int num_inputs : {1, 2, 9, 64}) {
    for (const int num_outputs : {8, 9, 64}) {
      for (const std::size_t count : {1, 97, 9001}) {
        std::vector<Bytes> inputs;
        for (int i = 0; i < num_inputs; ++i) inputs.push_back(RandomElements(dtype, count, &rng));
        const Bytes expected = ReferenceReduce({dtype, op}, inputs, count);
        for (const bool in_place : {false, true}) {
          SCOPED_TRACE(testing::Message() << num_inputs << " inputs, " << num_outputs << " outputs, count "
                                          << count << (in_place ? ", in place" : ""));
          Check({dtype, op}, inputs, expected, count, num_outputs, {1, 1}, in_place);
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

// The types that have factors, with factors.
class FactorSweepTest : public SweepTest {};

TEST_P(FactorSweepTest, EqualsReference) {
  // These have one factor of 1, inexact factors, a negative factor, and subnormal, infinite or NaN results.
  constexpr std::pair<double, double> kFactors[] = {
      {0.1, 1}, {1, 0.7}, {1 / 3.0, 3}, {-1.7, 1e-39}, {1e20, 0}};
  const DType dtype = std::get<1>(GetParam());
  std::mt19937_64 rng(5);
  for (int o = 0; o < kNumReduceOps; ++o) {
    for (const auto& [prescale, postscale] : kFactors) {
      const Reduction reduction = {dtype, static_cast<ReduceOp>(o), prescale, postscale};
      if (!ReduceOpDefined(dtype, reduction.op)) continue;
      for (const int num_inputs : {1, 2, 3, 9, 17}) {
        for (const std::size_t count : {0, 1, 7, 97, 2203}) {
          std::vector<Bytes> inputs;
          for (int i = 0; i < num_inputs; ++i) inputs.push_back(RandomElements(dtype, count, &rng));
          const Bytes expected = ReferenceReduce(reduction, inputs, count);
          for (const int num_outputs : {1, 9}) {
            for (const bool in_place : {false, true}) {
              SCOPED_TRACE(testing::Message()
                           << ReduceOpName(reduction.op) << ", " << num_inputs << " inputs times " << prescale
                           << ", result times " << postscale << ", " << num_outputs << " outputs, count "
                           << count << (in_place ? ", in place" : ""));
              Check(reduction, inputs, expected, count, num_outputs, {1, 1}, in_place);
              if (HasFatalFailure()) return;
              Reduction past_cache = reduction;
              past_cache.past_cache = true;
              Check(past_cache, inputs, expected, count, num_outputs, {0, 0}, in_place);
              if (HasFatalFailure()) return;
            }
          }
        }
      }
    }
  }
}

std::vector<DType> DTypes(bool only_inexact) {
  std::vector<DType> dtypes;
  for (int i = 0; i < kNumDTypes; ++i) {
    const auto dtype = static_cast<DType>(i);
    if (!only_inexact || IsInexact(dtype)) dtypes.push_back(dtype);
  }
  return dtypes;
}

std::string ParamName(const testing::TestParamInfo<SweepTest::ParamType>& info) {
  return std::string(std::get<0>(info.param).name) + "_" + DTypeName(std::get<1>(info.param));
}

INSTANTIATE_TEST_SUITE_P(Targets, SweepTest,
                         testing::Combine(testing::ValuesIn(RunnableReduceTargets()),
                                          testing::ValuesIn(DTypes(false))),
                         ParamName);
INSTANTIATE_TEST_SUITE_P(Targets, FactorSweepTest,
                         testing::Combine(testing::ValuesIn(RunnableReduceTargets()),
                                          testing::ValuesIn(DTypes(true))),
                         ParamName);

TEST(ReduceTargetTest, PublicEntryUsesTheBest) {
  EXPECT_STREQ(ReduceTarget(), RunnableReduceTargets().front().name);
  const float a[3] = {1, 2, 3}, b[3] = {10, 20, 30};
  float c[3];
  const void* inputs[] = {a, b};
  void* outputs[] = {c};
  Reduce({DType::kFloat32, ReduceOp::kSum}, inputs, 2, outputs, 1, 3);
  EXPECT_EQ(c[0], 11);
  EXPECT_EQ(c[1], 22);
  EXPECT_EQ(c[2], 33);
  Reduce({DType::kFloat32, ReduceOp::kSum, 2.0, 0.25}, inputs, 2, outputs, 1, 3);
  EXPECT_EQ(c[0], 5.5f);
  EXPECT_EQ(c[1], 11);
  EXPECT_EQ(c[2], 16.5f);
}

}  // namespace
}  // namespace tf_smddp

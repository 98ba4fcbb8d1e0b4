// Which operations NCCL supports, which calls they become, and factors in the types of elements.
#include "kernels/collectives/backends/nccl/nccl_calls.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/cpp/cuda/nccl_trial.h"
#include "tests/cpp/reduce/reference.h"

namespace tf_smddp::testing {
namespace {

using nccl::DataType;
using nccl::NcclCall;
using nccl::ScalarOf;
using nccl::Support;
using nccl::SupportOf;
using Function = NcclCall::Function;

Support Of(DType dtype, ReduceOp op, double prescale = 1.0, double postscale = 1.0, int num_ranks = 2,
           CollectiveKind kind = CollectiveKind::kAllreduce) {
  return SupportOf({kind, dtype, op, RankId(), prescale, postscale}, num_ranks);
}

// For each type, by op in the order of ReduceOp: y(es), t(ype), o(p), a(verage), n(an).
TEST(NcclSupport, OfEachTypeAndOp) {
  const char* const expected[kNumDTypes] = {
      "yynny", "yynny", "yynny", "yynny",  // float16, bfloat16, float32, float64
      "yayyy", "yayyy", "yayyy", "ooyyo",  // int32, int64, uint8, bool
      "yayyy", "ttttt", "ttttt", "yayyy",  // int8, int16, uint16, uint32
      "yayyy", "yyooo", "yyooo",           // uint64, complex64, complex128
  };
  for (int dtype = 0; dtype < kNumDTypes; ++dtype) {
    for (int op = 0; op < kNumReduceOps; ++op) {
      for (const CollectiveKind kind : {CollectiveKind::kAllreduce, CollectiveKind::kReducescatter}) {
        const Support support = Of(static_cast<DType>(dtype), static_cast<ReduceOp>(op), 1.0, 1.0, 2, kind);
        EXPECT_EQ(expected[dtype][op], "ytoan"[static_cast<int>(support)])
            << DTypeName(static_cast<DType>(dtype)) << " " << ReduceOpName(static_cast<ReduceOp>(op));
      }
    }
  }
}

TEST(NcclSupport, OfWhatIsOnlyMoved) {
  for (int dtype = 0; dtype < kNumDTypes; ++dtype) {
    for (const CollectiveKind kind : {CollectiveKind::kBroadcast, CollectiveKind::kAllgather,
                                      CollectiveKind::kAlltoall, CollectiveKind::kBarrier}) {
      EXPECT_EQ(Support::kYes, Of(static_cast<DType>(dtype), ReduceOp::kSum, 1.0, 1.0, 2, kind));
    }
  }
}

TEST(NcclSupport, OfFactors) {
  for (const DType dtype : {DType::kFloat16, DType::kBFloat16, DType::kFloat32, DType::kFloat64,
                            DType::kComplex64, DType::kComplex128}) {
    for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kAverage}) {
      EXPECT_EQ(Support::kYes, Of(dtype, op, 0.3, 2.0));
      EXPECT_EQ(Support::kYes, Of(dtype, op, 1.0, -0.5));
      EXPECT_EQ(Support::kYes, Of(dtype, op, 0.0, 1.0));
      EXPECT_EQ(Support::kNoFactor, Of(dtype, op, 1e-300, 1e-300));  // their product is zero
      EXPECT_EQ(Support::kNoFactor, Of(dtype, op, 1e300, 1e300));
    }
  }
  EXPECT_EQ(Support::kNoFactor, Of(DType::kFloat32, ReduceOp::kProduct, 2.0));
  EXPECT_EQ(Support::kNoFactor, Of(DType::kFloat32, ReduceOp::kProduct, 1.0, 2.0));
  EXPECT_EQ(Support::kNoFactor, Of(DType::kInt32, ReduceOp::kSum, 2.0));
  EXPECT_EQ(Support::kNoFactor, Of(DType::kBool, ReduceOp::kMax, 1.0, 2.0));
  // The smallest normal number of float16 is 2^-14; each of two factors may be beyond it.
  EXPECT_EQ(Support::kYes, Of(DType::kFloat16, ReduceOp::kSum, std::ldexp(1.0, -14)));
  EXPECT_EQ(Support::kNoFactor, Of(DType::kFloat16, ReduceOp::kSum, std::ldexp(1.0, -15)));
  EXPECT_EQ(Support::kNoFactor, Of(DType::kFloat16, ReduceOp::kAverage, std::ldexp(1.0, -14)));
  EXPECT_EQ(Support::kNoFactor, Of(DType::kFloat16, ReduceOp::kSum, 65536.0));
  EXPECT_EQ(Support::kYes, Of(DType::kFloat16, ReduceOp::kAverage, 65536.0));
  EXPECT_EQ(Support::kYes, Of(DType::kFloat16, ReduceOp::kSum, 1e-20, 1e20));
}

TEST(NcclScalar, IsEachNormalNumberOfTheHalfTypes) {
  for (const auto& [type, format] :
       {std::pair(DataType::kFloat16, kFloat16Format), {DataType::kBFloat16, kBFloat16Format}}) {
    const unsigned infinity = ((1u << format.exponent_bits) - 1) << format.mantissa_bits;
    for (unsigned pattern = 0; pattern < 0x10000; ++pattern) {
      const unsigned size = pattern & 0x7fff;
      const bool normal = size == 0 || (size >= 1u << format.mantissa_bits && size < infinity);
      std::uint64_t bits = 77;
      const double value = DecodeHalf(format, static_cast<std::uint16_t>(pattern));
      ASSERT_EQ(normal, ScalarOf(type, value, &bits)) << pattern;
      ASSERT_EQ(normal ? pattern : 77u, bits);
      if (!normal || size == 0 || size + 1 == infinity) continue;
      // Numbers between this one and the next, and the tie.
      const double next = DecodeHalf(format, static_cast<std::uint16_t>(pattern + 1));
      for (const double part : {0.25, 0.5, 0.75}) {
        const double between = value + part * (next - value);
        ASSERT_TRUE(ScalarOf(type, between, &bits));
        ASSERT_EQ(EncodeHalf(format, between), bits);
      }
    }
  }
}

TEST(NcclScalar, OfOtherTypes) {
  std::uint64_t bits = 0;
  ASSERT_TRUE(ScalarOf(DataType::kFloat16, 65519.0, &bits));
  EXPECT_EQ(0x7bffu, bits);
  EXPECT_FALSE(ScalarOf(DataType::kFloat16, 65520.0, &bits));  // is rounded to infinity
  ASSERT_TRUE(ScalarOf(DataType::kFloat32, 0.1, &bits));
  EXPECT_EQ(0x3dcccccdu, bits);
  EXPECT_FALSE(ScalarOf(DataType::kFloat32, 1e39, &bits));
  EXPECT_FALSE(ScalarOf(DataType::kFloat32, 1e-39, &bits));
  ASSERT_TRUE(ScalarOf(DataType::kFloat64, 0.1, &bits));
  double value = 0;
  std::memcpy(&value, &bits, sizeof value);
  EXPECT_EQ(0.1, value);
  for (const double none : {std::numeric_limits<double>::infinity(), std::nan("")}) {
    for (const DataType type :
         {DataType::kFloat16, DataType::kBFloat16, DataType::kFloat32, DataType::kFloat64}) {
      EXPECT_FALSE(ScalarOf(type, none, &bits));
    }
  }
  EXPECT_FALSE(ScalarOf(DataType::kInt32, 1.0, &bits));
}

// The functions of a rank's calls, one letter each, and their counts.
std::string CallsOf(const Trial& trial, int num_ranks, int rank) {
  std::vector<NcclCall> calls;
  alignas(8) static char input[4096], output[4096];
  nccl::AppendCalls(CallOf(trial, num_ranks), ParticipantId(rank), input, output, &calls);
  std::string text;
  for (const NcclCall& call : calls) {
    const Function function = call.function;
    text += (text.empty() ? "" : " ") + std::string(1, "AabGRsr"[static_cast<int>(function)]);
    if (function == Function::kReduce || function == Function::kBroadcast || function == Function::kSend ||
        function == Function::kReceive) {
      text += std::to_string(call.peer);
    }
    text += "*" + std::to_string(call.count);
    const bool sends =
        function != Function::kReceive && (function != Function::kBroadcast || call.peer == rank);
    if (sends) text += "@" + std::to_string(static_cast<const char*>(call.send) - input);
    const bool receives = function != Function::kSend && (function != Function::kReduce || call.peer == rank);
    if (receives) text += ">" + std::to_string(static_cast<char*>(call.receive) - output);
  }
  return text;
}

Trial Moved(CollectiveKind kind) {
  Trial trial;
  trial.kind = kind;
  trial.dtype = DType::kInt16;
  trial.row_count = 5;
  return trial;
}

TEST(NcclCalls, OfEachCollective) {
  Trial allreduce;
  allreduce.rows = 7;
  EXPECT_EQ("A*7@0>0", CallsOf(allreduce, 3, 1));
  allreduce.dtype = DType::kComplex64;
  EXPECT_EQ("A*14@0>0", CallsOf(allreduce, 3, 1));
  allreduce.rows = 0;
  EXPECT_EQ("", CallsOf(allreduce, 3, 1));

  Trial broadcast = Moved(CollectiveKind::kBroadcast);
  broadcast.rows = 3;
  broadcast.root = 2;
  EXPECT_EQ("b2*30>0", CallsOf(broadcast, 3, 1));
  EXPECT_EQ("b2*30@0>0", CallsOf(broadcast, 3, 2));

  EXPECT_EQ("", CallsOf(Moved(CollectiveKind::kBarrier), 3, 1));
}

TEST(NcclCalls, OfRowsThatDiffer) {
  Trial allgather = Moved(CollectiveKind::kAllgather);
  allgather.rows_of = {2, 2, 2};
  EXPECT_EQ("G*20@0>0", CallsOf(allgather, 3, 1));
  allgather.rows_of = {0, 0, 0};
  EXPECT_EQ("", CallsOf(allgather, 3, 1));
  allgather.rows_of = {2, 0, 3};
  EXPECT_EQ("b0*20@0>0 b2*30>20", CallsOf(allgather, 3, 0));
  EXPECT_EQ("b0*20>0 b2*30@0>20", CallsOf(allgather, 3, 2));

  Trial reducescatter;
  reducescatter.kind = CollectiveKind::kReducescatter;
  reducescatter.row_count = 5;
  reducescatter.rows = 6;
  EXPECT_EQ("R*10@0>0", CallsOf(reducescatter, 3, 1));
  reducescatter.rows = 5;
  EXPECT_EQ("a0*10@0 a1*10@40>0 a2*5@80", CallsOf(reducescatter, 3, 1));
  reducescatter.rows = 2;
  EXPECT_EQ("a0*5@0 a1*5@20", CallsOf(reducescatter, 3, 2));
  reducescatter.rows = 6;
  reducescatter.to_root = true;
  reducescatter.root = 2;
  EXPECT_EQ("a2*30@0", CallsOf(reducescatter, 3, 1));
  EXPECT_EQ("a2*30@0>0", CallsOf(reducescatter, 3, 2));

  Trial alltoall = Moved(CollectiveKind::kAlltoall);
  alltoall.splits = {{1, 2, 0}, {3, 0, 4}, {0, 0, 5}};
  EXPECT_EQ("s0*10@0 r0*10>0 s1*20@10 r1*30>10", CallsOf(alltoall, 3, 0));
  EXPECT_EQ("s0*30@0 r0*20>0 s2*40@30", CallsOf(alltoall, 3, 1));
  EXPECT_EQ("r1*40>0 s2*50@0 r2*50>40", CallsOf(alltoall, 3, 2));
}

TEST(NcclCalls, HaveOneFactor) {
  Trial trial;
  trial.rows = 1;
  trial.op = ReduceOp::kAverage;
  trial.prescale = 0.5;
  trial.postscale = 8.0;
  std::vector<NcclCall> calls;
  int data = 0;
  nccl::AppendCalls(CallOf(trial, 4), ParticipantId(0), &data, &data, &calls);
  ASSERT_EQ(1u, calls.size());
  EXPECT_TRUE(calls[0].scaled);
  EXPECT_EQ(0x3f800000u, calls[0].scalar);  // 0.5 * 8 / 4
}

}  // namespace
}  // namespace tf_smddp::testing

// Which calls of NCCL are packed, and where in the buffer.
#include "kernels/collectives/backends/nccl/nccl_packing.h"

#include <cstddef>
#include <cstdint>
#include <vector>

#include "gtest/gtest.h"

namespace tf_smddp::testing {
namespace {

using nccl::DataType;
using nccl::kMostPackedBytes;
using nccl::kPackingBufferBytes;
using nccl::NcclCall;
using nccl::Pack;
using nccl::Packing;
using Function = NcclCall::Function;

// Nothing is read or written at these addresses.
void* At(std::uint64_t address) { return reinterpret_cast<void*>(address); }
constexpr std::uint64_t kBuffer = 1 << 30;

NcclCall Allreduce(std::uint64_t input, std::uint64_t output, std::uint64_t count,
                   DataType type = DataType::kFloat32) {
  NcclCall call;
  call.send = At(input);
  call.receive = At(output);
  call.count = count;
  call.type = type;
  return call;
}

void ExpectCopy(const cuda::Copy& copy, std::uint64_t to, std::uint64_t from, std::uint64_t bytes) {
  EXPECT_EQ(copy.to, At(to));
  EXPECT_EQ(copy.from, At(from));
  EXPECT_EQ(copy.bytes, bytes);
}

void ExpectUnchanged(std::vector<NcclCall> calls) {
  const std::size_t count = calls.size();
  const Packing packing = Pack(At(kBuffer), &calls);
  EXPECT_EQ(calls.size(), count);
  EXPECT_TRUE(packing.in.empty());
  EXPECT_TRUE(packing.out.empty());
}

TEST(NcclPacking, EachTensorHasAnAlignedPlace) {
  std::vector<NcclCall> calls = {Allreduce(1000, 2000, 3), Allreduce(3000, 3000, 8),
                                 Allreduce(5000, 6000, 1)};
  const Packing packing = Pack(At(kBuffer), &calls);
  ASSERT_EQ(calls.size(), 1u);
  EXPECT_EQ(calls[0].function, Function::kAllReduce);
  EXPECT_EQ(calls[0].send, At(kBuffer));
  EXPECT_EQ(calls[0].receive, At(kBuffer));
  EXPECT_EQ(calls[0].count, 16u);  // 12, 32 and 4 bytes, rounded up to 16
  ASSERT_EQ(packing.in.size(), 3u);
  ExpectCopy(packing.in[0], kBuffer, 1000, 12);
  ExpectCopy(packing.in[1], kBuffer + 16, 3000, 32);
  ExpectCopy(packing.in[2], kBuffer + 48, 5000, 4);
  ASSERT_EQ(packing.out.size(), 3u);
  ExpectCopy(packing.out[0], 2000, kBuffer, 12);
  ExpectCopy(packing.out[1], 3000, kBuffer + 16, 32);
  ExpectCopy(packing.out[2], 6000, kBuffer + 48, 4);
}

TEST(NcclPacking, OnlyWhatIsReducedAlikeIsPackedTogether) {
  std::vector<NcclCall> calls(8, Allreduce(1000, 1000, 4));
  calls[1].type = calls[5].type = DataType::kFloat16;
  calls[2].op = calls[6].op = nccl::kAverage;
  calls[3].scaled = calls[7].scaled = true;
  calls[3].scalar = calls[7].scalar = 5;
  const Packing packing = Pack(At(kBuffer), &calls);
  EXPECT_EQ(packing.in.size(), 8u);
  ASSERT_EQ(calls.size(), 4u);
  std::uint64_t half_elements = 0;
  for (const NcclCall& call : calls) {
    if (call.type == DataType::kFloat16) half_elements += call.count;
  }
  EXPECT_EQ(half_elements, 16u);  // two tensors of 8 bytes, each in 16

  ExpectUnchanged({calls[0], calls[1], calls[2], calls[3]});
  NcclCall other_factor = calls[3], factor = calls[3];
  factor.scaled = other_factor.scaled = true;
  factor.scalar = 6;
  other_factor.scalar = 7;
  ExpectUnchanged({factor, other_factor});
}

TEST(NcclPacking, LargeTensorsAndOtherCollectivesGoOutAsTheyAre) {
  const std::uint64_t most = kMostPackedBytes / 4;
  ExpectUnchanged({});
  ExpectUnchanged({Allreduce(1000, 1000, 4)});
  ExpectUnchanged({Allreduce(1000, 1000, most + 1), Allreduce(2000, 2000, most + 1)});
  for (const Function function : {Function::kReduce, Function::kBroadcast, Function::kAllGather,
                                  Function::kReduceScatter, Function::kSend, Function::kReceive}) {
    NcclCall call = Allreduce(1000, 1000, 4);
    call.function = function;
    ExpectUnchanged({call, call});
  }
  std::vector<NcclCall> calls = {Allreduce(1000, 1000, most), Allreduce(2000, 2000, most)};
  EXPECT_EQ(Pack(At(kBuffer), &calls).in.size(), 2u);
}

TEST(NcclPacking, WhatHasNoRoomGoesOutAsItIs) {
  constexpr std::uint64_t kFit = kPackingBufferBytes / kMostPackedBytes;
  std::vector<NcclCall> calls(kFit + 2, Allreduce(1000, 1000, kMostPackedBytes / 4));
  const Packing packing = Pack(At(kBuffer), &calls);
  EXPECT_EQ(packing.in.size(), kFit);
  EXPECT_EQ(calls.size(), 3u);
  for (const cuda::Copy& copy : packing.in) {
    EXPECT_LE(reinterpret_cast<std::uint64_t>(copy.to) + copy.bytes, kBuffer + kPackingBufferBytes);
  }
}

}  // namespace
}  // namespace tf_smddp::testing

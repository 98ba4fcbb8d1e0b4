// Which calls of NCCL are packed, and where in the buffer.
#include "kernels/collectives/backends/nccl/nccl_packing.h"

#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

#include "gtest/gtest.h"

namespace tf_smddp::testing {
namespace {

using nccl::DataType;
using nccl::kMostPackedBytes;
using nccl::NcclCall;
using nccl::Pack;
using nccl::PackedRound;
using Function = NcclCall::Function;

// Nothing is read or written at these addresses.
void* At(std::uint64_t address) { return reinterpret_cast<void*>(address); }
constexpr std::uint64_t kBuffer = 1 << 30, kBytes = 16 << 20;

NcclCall Allreduce(std::uint64_t input, std::uint64_t output, std::uint64_t count,
                   DataType type = DataType::kFloat32) {
  NcclCall call;
  call.send = At(input);
  call.receive = At(output);
  call.count = count;
  call.type = type;
  return call;
}

void ExpectCopy(const cuda::Copy& copy, std::uint64_t to, std::uint64_t from, std::uint64_t count) {
  EXPECT_EQ(copy.to, At(to));
  EXPECT_EQ(copy.from, At(from));
  EXPECT_EQ(copy.count, count);
}

// The one round of calls that the buffer holds at once.
PackedRound RoundOf(const std::vector<NcclCall>& calls) {
  const std::deque<PackedRound> rounds = Pack(At(kBuffer), kBytes, calls);
  EXPECT_EQ(rounds.size(), 1u);
  return rounds.front();
}

void ExpectUnchanged(const std::vector<NcclCall>& calls) {
  const PackedRound round = RoundOf(calls);
  EXPECT_EQ(round.calls.size(), calls.size());
  EXPECT_TRUE(round.in.empty());
  EXPECT_TRUE(round.out.empty());
}

TEST(NcclPacking, EachTensorHasAnAlignedPlace) {
  const PackedRound round =
      RoundOf({Allreduce(1000, 2000, 3), Allreduce(3000, 3000, 8), Allreduce(5000, 6000, 1)});
  const std::vector<NcclCall>& calls = round.calls;
  ASSERT_EQ(calls.size(), 1u);
  EXPECT_EQ(calls[0].function, Function::kAllReduce);
  EXPECT_EQ(calls[0].send, At(kBuffer));
  EXPECT_EQ(calls[0].receive, At(kBuffer));
  EXPECT_EQ(calls[0].count, 16u);  // 12, 32 and 4 bytes, rounded up to 16
  ASSERT_EQ(round.in.size(), 3u);
  ExpectCopy(round.in[0], kBuffer, 1000, 12);
  ExpectCopy(round.in[1], kBuffer + 16, 3000, 32);
  ExpectCopy(round.in[2], kBuffer + 48, 5000, 4);
  ASSERT_EQ(round.out.size(), 3u);
  ExpectCopy(round.out[0], 2000, kBuffer, 12);
  ExpectCopy(round.out[1], 3000, kBuffer + 16, 32);
  ExpectCopy(round.out[2], 6000, kBuffer + 48, 4);
}

TEST(NcclPacking, OnlyWhatIsReducedAlikeIsPackedTogether) {
  std::vector<NcclCall> calls(8, Allreduce(1000, 1000, 4));
  calls[1].type = calls[5].type = DataType::kFloat16;
  calls[2].op = calls[6].op = nccl::kAverage;
  calls[3].scaled = calls[7].scaled = true;
  calls[3].scalar = calls[7].scalar = 5;
  const PackedRound round = RoundOf(calls);
  EXPECT_EQ(round.in.size(), 8u);
  ASSERT_EQ(round.calls.size(), 4u);
  std::uint64_t half_elements = 0;
  for (const NcclCall& call : round.calls) {
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
  EXPECT_EQ(RoundOf(calls).in.size(), 2u);
}

// A batch is sealed by the tensor that reaches the cap. Each counts for 128 bytes at least there.
TEST(NcclPacking, ABatchOfSmallTensorsFits) {
  for (const std::uint64_t cap : {1 << 20, 25 << 20, 60 << 20}) {
    for (const std::uint64_t count : {1, 33, 20000, 65536}) {
      const std::uint64_t weight = (count * 4 + 127) / 128 * 128;
      const std::vector<NcclCall> calls(cap / weight + 1, Allreduce(1000, 1000, count));
      const std::deque<PackedRound> rounds = Pack(At(kBuffer), nccl::PackingBufferBytes(cap), calls);
      EXPECT_EQ(rounds.size(), 1u);
      EXPECT_EQ(rounds.front().calls.size(), 1u) << calls.size() << " tensors of " << count;
    }
  }
}

TEST(NcclPacking, WhatHasNoRoomGoesOutAsItIs) {
  constexpr std::uint64_t kFit = kBytes / kMostPackedBytes;
  std::vector<NcclCall> calls(kFit + 2, Allreduce(1000, 1000, kMostPackedBytes / 4));
  const PackedRound round = RoundOf(calls);
  EXPECT_EQ(round.in.size(), kFit);
  EXPECT_EQ(round.calls.size(), 3u);
  for (const cuda::Copy& copy : round.in) {
    EXPECT_LE(reinterpret_cast<std::uint64_t>(copy.to) + copy.count, kBuffer + kBytes);
  }
}

NcclCall Compressed(std::uint64_t input, std::uint64_t output, std::uint64_t count, DataType type) {
  NcclCall call = Allreduce(input, output, count, type);
  call.compressed = true;
  return call;
}

TEST(NcclPacking, WhatIsCompressedIsConvertedOnItsWay) {
  const PackedRound round =
      RoundOf({Compressed(1000, 2000, 3, DataType::kFloat16), Compressed(3000, 4000, 9, DataType::kBFloat16),
               Allreduce(5000, 5000, 4, DataType::kFloat16)});
  ASSERT_EQ(round.calls.size(), 2u);
  EXPECT_EQ(round.calls[0].type, DataType::kFloat16);
  EXPECT_EQ(round.calls[0].count, 16u);  // 6 and 8 bytes, rounded up to 16
  EXPECT_EQ(round.calls[1].type, DataType::kBFloat16);
  EXPECT_EQ(round.calls[1].count, 16u);  // 18 bytes, rounded up to 32
  ASSERT_EQ(round.in.size(), 3u);
  ExpectCopy(round.in[0], kBuffer, 1000, 3);
  EXPECT_EQ(round.in[0].conversion, cuda::Conversion::kFloat32ToFloat16);
  ExpectCopy(round.in[1], kBuffer + 16, 5000, 8);
  EXPECT_EQ(round.in[1].conversion, cuda::Conversion::kNone);
  ExpectCopy(round.in[2], kBuffer + 32, 3000, 9);
  EXPECT_EQ(round.in[2].conversion, cuda::Conversion::kFloat32ToBFloat16);
  ASSERT_EQ(round.out.size(), 3u);
  ExpectCopy(round.out[0], 2000, kBuffer, 3);
  EXPECT_EQ(round.out[0].conversion, cuda::Conversion::kFloat16ToFloat32);
  ExpectCopy(round.out[2], 4000, kBuffer + 32, 9);
  EXPECT_EQ(round.out[2].conversion, cuda::Conversion::kBFloat16ToFloat32);
}

// Each element is in one round, once, and the rounds fit.
TEST(NcclPacking, WhatIsCompressedAndLargeTakesSeveralRounds) {
  constexpr std::uint64_t kHalves = kBytes / 2, kInput = 1 << 28, kOutput = 1 << 29;
  const std::vector<NcclCall> calls = {Compressed(kInput, kOutput, 2 * kHalves + 5, DataType::kFloat16),
                                       Compressed(16, 16, 1, DataType::kFloat16), Allreduce(32, 32, 1 << 20)};
  const std::deque<PackedRound> rounds = Pack(At(kBuffer), kBytes, calls);
  ASSERT_EQ(rounds.size(), 3u);
  std::uint64_t element = 0;
  for (const PackedRound& round : rounds) {
    ExpectCopy(round.in[0], kBuffer, kInput + 4 * element, round.in[0].count);
    ExpectCopy(round.out[0], kOutput + 4 * element, kBuffer, round.in[0].count);
    element += round.in[0].count;
    EXPECT_LE(round.calls.back().count, kHalves);
  }
  EXPECT_EQ(element, 2 * kHalves + 5);
  EXPECT_EQ(rounds[2].in.size(), 2u);  // the small one beside the rest of the large one
  EXPECT_EQ(rounds[2].calls.size(), 2u);
}

}  // namespace
}  // namespace tf_smddp::testing

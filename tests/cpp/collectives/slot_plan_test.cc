// Where the chunks of a batch lie in the windows on a GPU.
#include "kernels/collectives/backends/ipc/slot_plan.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/collectives/collective.h"

namespace tf_smddp {
namespace {

using ipc::SlotPart;
using ipc::SlotPlan;

constexpr std::uint64_t kSlot = 4096;

Call CallOf(CollectiveKind kind, std::uint64_t rows, std::uint64_t row_count, int num_ranks) {
  Call call;
  call.operation.kind = kind;
  call.num_ranks = num_ranks;
  call.root = ParticipantId(0);
  call.num_rows = rows;
  call.row_count = row_count;
  const auto ranks = static_cast<std::uint64_t>(num_ranks);
  for (std::uint64_t each = 0; kind == CollectiveKind::kAllgather && each < ranks; ++each) {
    call.rows.push_back(rows * each / ranks);
  }
  for (std::uint64_t each = 0; kind == CollectiveKind::kAlltoall && each < ranks * ranks; ++each) {
    if (each % ranks == 0) call.splits.emplace_back();
    call.splits.back().push_back(rows * each / (ranks * ranks));
  }
  return call;
}

// All chunks of all calls, each once and in order; and in a slot, no window overlaps another.
void ExpectAllChunks(const SlotPlan& plan, const std::vector<Call>& calls) {
  std::map<std::size_t, std::uint64_t> chunks;
  for (std::uint64_t slot = 0; slot < plan.size(); ++slot) {
    std::uint64_t end = 0;
    EXPECT_FALSE(plan.At(slot).empty());
    for (const SlotPart& part : plan.At(slot)) {
      const Call& call = calls[part.item];
      EXPECT_EQ(part.index, chunks[part.item]++);
      EXPECT_GE(part.capacity, static_cast<std::uint64_t>(call.num_ranks));
      EXPECT_GE(part.offset, end);
      end = part.offset + part.capacity * DTypeBytes(call.operation.dtype);
      EXPECT_LE(end, kSlot);
      EXPECT_LT(part.index, FindCollective(call.operation.kind).NumChunks(call, part.capacity));
    }
  }
  for (std::size_t item = 0; item < calls.size(); ++item) {
    const Collective& collective = FindCollective(calls[item].operation.kind);
    const std::uint64_t capacity = kSlot / DTypeBytes(calls[item].operation.dtype);
    const std::uint64_t wanted = collective.NumChunks(calls[item], capacity);
    EXPECT_TRUE(chunks[item] == wanted || (wanted >= 1 && chunks[item] == 1))
        << CollectiveKindName(calls[item].operation.kind) << " of " << calls[item].num_rows << " rows";
  }
}

TEST(SlotPlanTest, HasEachChunkOnce) {
  for (const int num_ranks : {1, 2, 3, 8}) {
    std::vector<Call> calls;
    for (const CollectiveKind kind :
         {CollectiveKind::kAllreduce, CollectiveKind::kBroadcast, CollectiveKind::kAllgather,
          CollectiveKind::kAlltoall, CollectiveKind::kReducescatter}) {
      for (const std::uint64_t rows : {0, 1, 2, 7, 100, 1000, 1024, 5000}) {
        calls.push_back(CallOf(kind, rows, 0, num_ranks));
        calls.push_back(CallOf(kind, rows, 1, num_ranks));
        calls.push_back(CallOf(kind, rows, 3, num_ranks));
      }
    }
    SlotPlan plan(kSlot);
    for (const Call& call : calls) plan.Add(FindCollective(call.operation.kind), call);
    ExpectAllChunks(plan, calls);
  }
}

TEST(SlotPlanTest, SmallTensorsShareASlot) {
  SlotPlan plan(kSlot);
  const Call call = CallOf(CollectiveKind::kAllreduce, 10, 1, 2);
  for (int i = 0; i < 20; ++i) plan.Add(FindCollective(call.operation.kind), call);
  EXPECT_EQ(plan.size(), 2u);
  EXPECT_EQ(plan.At(0).size(), 16u);  // a window is a multiple of 256 bytes
  plan.Clear();
  EXPECT_EQ(plan.size(), 0u);
  plan.Add(FindCollective(call.operation.kind), call);
  EXPECT_EQ(plan.At(0).front().item, 0u);
}

}  // namespace
}  // namespace tf_smddp

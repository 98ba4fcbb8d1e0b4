// The table of collective_info.h. The values are part of the manifest.
#include "kernels/common/collective_info.h"

#include <cstddef>
#include <iterator>
#include <set>
#include <string>

#include "gtest/gtest.h"

namespace tf_smddp {
namespace {

TEST(CollectiveInfo, EveryCollective) {
  struct {
    CollectiveKind kind;
    int value;
    const char* name;
    bool reduction, rows_differ;
  } constexpr kKinds[] = {
      {CollectiveKind::kAllreduce, 0, "allreduce", true, false},
      {CollectiveKind::kBroadcast, 1, "broadcast", false, false},
      {CollectiveKind::kBarrier, 2, "barrier", false, false},
      {CollectiveKind::kAllgather, 3, "allgather", false, true},
      {CollectiveKind::kReducescatter, 4, "reducescatter", true, false},
      {CollectiveKind::kAlltoall, 5, "alltoall", false, true},
      {CollectiveKind::kCommunicator, 6, "process set", false, false},
  };
  ASSERT_EQ(std::size(kKinds), static_cast<std::size_t>(kNumCollectiveKinds));
  for (const auto& expected : kKinds) {
    EXPECT_EQ(static_cast<int>(expected.kind), expected.value);
    EXPECT_STREQ(CollectiveKindName(expected.kind), expected.name);
    EXPECT_EQ(IsReduction(expected.kind), expected.reduction) << expected.name;
    EXPECT_EQ(RowsMayDiffer(expected.kind), expected.rows_differ) << expected.name;
  }
}

TEST(CollectiveInfo, EveryOpRunsOneCollective) {
  std::set<std::string> ops;
  for (const CollectiveInfo& info : kCollectives) {
    EXPECT_EQ(info.ops[0] == nullptr, info.Is(kIsInternal)) << info.name;
    for (const char* op : info.ops) {
      if (op == nullptr) continue;
      EXPECT_TRUE(ops.insert(op).second) << op;
    }
  }
  EXPECT_EQ(ops.count("SmddpAllreduce"), 1u);
}

}  // namespace
}  // namespace tf_smddp

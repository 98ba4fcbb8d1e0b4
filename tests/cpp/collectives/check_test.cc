// The checks that each collective makes of its arguments: what is refused, and what the error names.
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/collectives/collective.h"

namespace tf_smddp {
namespace {

// The error of a request of ranks 0, 2 and 3; empty when it is accepted.
std::string ErrorOf(const Operation& operation, const std::vector<std::int64_t>& shape,
                    const std::vector<std::int64_t>& splits = {}, const std::vector<int>& ranks = {0, 2, 3}) {
  const Status status = FindCollective(operation.kind).Check({operation, shape, splits, ranks});
  EXPECT_TRUE(status.ok() || status.code() == StatusCode::kInvalidArgument);
  return status.message();
}

TEST(Check, EveryCollectiveAcceptsWhatItCanDo) {
  for (int number = 0; number < kNumCollectiveKinds; ++number) {
    Operation operation;
    operation.kind = static_cast<CollectiveKind>(number);
    if (InfoOf(operation.kind).Is(kHasRoot)) operation.root = RankId(2);
    std::vector<std::int64_t> splits;
    if (InfoOf(operation.kind).Is(kHasSplits)) splits = {1, 0, 5};
    EXPECT_EQ(ErrorOf(operation, {6, 2}, splits), "") << CollectiveKindName(operation.kind);
  }
}

TEST(Check, OnlyReductionsLookAtTheOpAndTheFactors) {
  for (int number = 0; number < kNumCollectiveKinds; ++number) {
    const auto kind = static_cast<CollectiveKind>(number);
    if (InfoOf(kind).Is(kHasRoot) || InfoOf(kind).Is(kHasSplits)) continue;
    const bool reduces = IsReduction(kind);
    EXPECT_EQ(!ErrorOf({kind, DType::kBool, ReduceOp::kSum}, {6}).empty(), reduces);
    EXPECT_EQ(!ErrorOf({kind, DType::kComplex64, ReduceOp::kMax}, {6}).empty(), reduces);
    EXPECT_EQ(!ErrorOf({kind, DType::kInt32, ReduceOp::kSum, RankId(), 0.5, 1.0}, {6}).empty(), reduces);
  }
}

TEST(Check, ErrorsNameTheValueAndTheRemedy) {
  constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(
      ErrorOf({CollectiveKind::kAllreduce, DType::kBool, ReduceOp::kSum}, {6}),
      "allreduce with op sum is not defined for bool; use min (logical and) or max (logical or), or cast");
  EXPECT_EQ(ErrorOf({CollectiveKind::kAllreduce, DType::kFloat32, ReduceOp::kSum, RankId(), kNaN, 1.0}, {6}),
            "allreduce with prescale nan and postscale 1; both must be finite");
  EXPECT_EQ(ErrorOf({CollectiveKind::kReducescatter, DType::kInt8, ReduceOp::kSum, RankId(), 1.0, 0.5}, {6}),
            "reducescatter with prescale 1 and postscale 0.5 is not defined for int8; cast to a "
            "floating "
            "type first");
  EXPECT_EQ(ErrorOf({CollectiveKind::kAllgather}, {}),
            "allgather of a scalar, which has no rows; reshape it to [1]");
  EXPECT_EQ(ErrorOf({CollectiveKind::kAlltoall}, {6}, {3, 3}),
            "alltoall with 2 splits for 3 ranks; give one number of rows for each");
  EXPECT_EQ(ErrorOf({CollectiveKind::kAlltoall}, {6}, {7, -1, 0}), "alltoall with a split of -1 rows");
  const std::int64_t huge = std::int64_t{1} << 62;
  EXPECT_EQ(ErrorOf({CollectiveKind::kAlltoall}, {6}, {huge, huge, huge}),
            "alltoall whose splits do not add up to its tensor's 6 rows");
}

TEST(Check, TheRootIsOneOfTheRanks) {
  const auto broadcast = [](RankId root) {
    return Operation{CollectiveKind::kBroadcast, DType::kFloat32, ReduceOp::kSum, root};
  };
  EXPECT_EQ(ErrorOf(broadcast(RankId(3)), {6}), "");
  EXPECT_EQ(ErrorOf(broadcast(RankId(1)), {6}),
            "broadcast with root rank 1, which is not in its process set, whose ranks are 0, 2, 3");
  EXPECT_EQ(ErrorOf(broadcast(RankId()), {6}, {}, {0, 1, 2}),
            "broadcast with root rank -1, which is not in its process set, whose ranks are 0 to 2");
  const Operation to_one = {CollectiveKind::kReducescatter, DType::kFloat32, ReduceOp::kSum, RankId(1)};
  EXPECT_EQ(ErrorOf(to_one, {6}),
            "reducescatter with root rank 1, which is not in its process set, whose ranks are 0, 2, 3");
}

}  // namespace
}  // namespace tf_smddp

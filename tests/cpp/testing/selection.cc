#include "tests/cpp/testing/selection.h"

#include <cstddef>
#include <cstdint>

#include "tests/cpp/testing/matrix.h"
#include "tests/cpp/testing/pairwise.h"
#include "tests/cpp/testing/sanitizers.h"

namespace tf_smddp::testing {
namespace {

constexpr CollectiveKind kKinds[] = {CollectiveKind::kAllreduce, CollectiveKind::kBroadcast,
                                     CollectiveKind::kAllgather, CollectiveKind::kReducescatter,
                                     CollectiveKind::kAlltoall};

}  // namespace

Selection Select(int size) {
  const std::vector<std::int64_t> counts = {0,        1,   size - 1, size,
                                            size + 1, 997, 5003,     kSanitized ? 20011 : 70001};
  Selection selection;
  unsigned salt = 0;
  for (const std::vector<int>& row :
       Pairwise({5, kNumDTypes, kNumReduceOps, 3, 8, kNumPatterns, kNumLayouts, 2, 3})) {
    Trial trial;
    trial.salt = ++salt;
    trial.kind = kKinds[row[0]];
    trial.dtype = static_cast<DType>(row[1]);
    trial.op = static_cast<ReduceOp>(row[2]);
    if (!ReduceOpDefined(trial.dtype, trial.op)) {
      trial.op = trial.dtype == DType::kBool ? ReduceOp::kMax : ReduceOp::kProduct;
    }
    if (IsReduction(trial.kind) && IsInexact(trial.dtype)) {
      trial.prescale = row[3] == 1 ? 0.3 : 1.0;
      trial.postscale = row[3] == 2 ? -1.5 : 1.0;
    }
    const std::int64_t count = counts[static_cast<std::size_t>(row[4])];
    trial.root = static_cast<int>(salt) % size;
    trial.to_root = salt % 3 == 0;
    trial.rows = count;
    if (trial.kind == CollectiveKind::kAllgather) trial.rows_of = Deal(count, size, row[5], salt);
    for (int sender = 0; trial.kind == CollectiveKind::kAlltoall && sender < size; ++sender) {
      trial.splits.push_back(Deal(count, size, row[5], salt + static_cast<unsigned>(sender)));
    }
    trial.placements = PlacementsOf(static_cast<Layout>(row[6]), size, salt);
    trial.row_count = row[7] == 0 ? 1 : 3;
    (row[8] == 0 ? selection.alone : selection.grouped).push_back(trial);
  }
  return selection;
}

}  // namespace tf_smddp::testing

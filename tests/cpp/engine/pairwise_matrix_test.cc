// A pairwise selection of collective × type × op × factors × count × pattern × layout × way to be submitted,
// at each size: for sanitizers, which would take too long for all, and for ranks that are processes.

#include <algorithm>
#include <set>
#include <tuple>
#include <vector>

#include "gtest/gtest.h"
#include "tests/cpp/testing/limited_ranks.h"
#include "tests/cpp/testing/matrix.h"
#include "tests/cpp/testing/pairwise.h"
#include "tests/cpp/testing/ranks.h"
#include "tests/cpp/testing/sanitizers.h"
#include "tests/cpp/testing/trial.h"

namespace tf_smddp::testing {
namespace {

constexpr CollectiveKind kKinds[] = {CollectiveKind::kAllreduce, CollectiveKind::kBroadcast,
                                     CollectiveKind::kAllgather, CollectiveKind::kReducescatter,
                                     CollectiveKind::kAlltoall};

// The trials of a size; every third or so is alone, the others are grouped.
struct Selection {
  std::vector<Trial> grouped;
  std::vector<Trial> alone;
};

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

TEST(Pairwise, CoversEveryPair) {
  const std::vector<int> axes = {5, 15, 5, 3, 8, 2};
  std::set<std::tuple<std::size_t, int, std::size_t, int>> covered;
  const std::vector<std::vector<int>> rows = Pairwise(axes);
  for (const std::vector<int>& row : rows) {
    ASSERT_EQ(row.size(), axes.size());
    for (std::size_t a = 0; a < axes.size(); ++a) {
      ASSERT_LT(row[a], axes[a]);
      for (std::size_t b = a + 1; b < axes.size(); ++b) covered.insert({a, row[a], b, row[b]});
    }
  }
  std::size_t pairs = 0;
  for (std::size_t a = 0; a < axes.size(); ++a) {
    for (std::size_t b = a + 1; b < axes.size(); ++b) pairs += static_cast<std::size_t>(axes[a] * axes[b]);
  }
  EXPECT_EQ(covered.size(), pairs);
  EXPECT_LT(rows.size(), 250u);  // of 18,000
}

class PairwiseMatrix : public ::testing::TestWithParam<int> {};

TEST_P(PairwiseMatrix, RanksAreThreads) {
  const Selection selection = Select(GetParam());
  RunMatrix(GetParam(), selection.grouped, 40);
  RunMatrix(GetParam(), selection.alone, 0);
}

INSTANTIATE_TEST_SUITE_P(Sizes, PairwiseMatrix, ::testing::Range(1, 9));

class PairwiseProcesses : public ::testing::TestWithParam<int> {};

TEST_P(PairwiseProcesses, AllSelected) {
  const int size = GetParam();
  const Selection selection = Select(size);
  LimitedRanks ranks(
      size, [](int, Config* config) { config->chunk_bytes = 64 << 10; },
      [&selection](Engine& engine) {
        for (std::size_t begin = 0; begin < selection.grouped.size(); begin += 40) {
          const std::size_t end = std::min(selection.grouped.size(), begin + 40);
          RunAsGroup(engine, kWorld,
                     {selection.grouped.begin() + static_cast<std::ptrdiff_t>(begin),
                      selection.grouped.begin() + static_cast<std::ptrdiff_t>(end)},
                     static_cast<unsigned>(begin));
        }
        RunAlone(engine, kWorld, selection.alone);
        return ::testing::Test::HasFailure() ? Internal("a wrong outcome; see the log") : Status();
      });
  for (const RankEnd& end : ranks.AwaitAll()) {
    EXPECT_EQ(end.error, "") << end.log;
    EXPECT_EQ(end.wait_status, 0) << end.log;
  }
}

INSTANTIATE_TEST_SUITE_P(Sizes, PairwiseProcesses, ::testing::Range(2, 9));

}  // namespace
}  // namespace tf_smddp::testing

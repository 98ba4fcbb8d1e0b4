// The pairwise selection of trials at each size, with ranks as threads: sanitizers would take too long for
// all.
#include <set>
#include <tuple>
#include <vector>

#include "gtest/gtest.h"
#include "tests/cpp/testing/matrix.h"
#include "tests/cpp/testing/pairwise.h"
#include "tests/cpp/testing/selection.h"

namespace tf_smddp::testing {
namespace {

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

}  // namespace
}  // namespace tf_smddp::testing

// Allgather: every size × type × rows (even, uneven, of one rank only) × length of a row × layout.
#include <vector>

#include "gtest/gtest.h"
#include "tests/cpp/testing/matrix.h"
#include "tests/cpp/testing/ranks.h"
#include "tests/cpp/testing/sanitizers.h"

namespace tf_smddp::testing {
namespace {

Trial Gather(DType dtype, std::vector<std::int64_t> rows, std::int64_t row_count, int layout, unsigned salt) {
  Trial trial;
  trial.kind = CollectiveKind::kAllgather;
  trial.dtype = dtype;
  trial.rows_of = std::move(rows);
  trial.row_count = row_count;
  trial.salt = salt;
  trial.placements = PlacementsOf(static_cast<Layout>(layout), static_cast<int>(trial.rows_of.size()), salt);
  return trial;
}

std::vector<Trial> AllgatherTrials(int size) {
  std::vector<Trial> trials;
  unsigned salt = 0;
  for (const std::int64_t total : Counts(size)) {
    for (const DType dtype : AllDTypes()) {
      for (int pattern = 0; pattern < kNumPatterns; ++pattern) {
        for (int layout = 0; layout < kNumHostLayouts; ++layout) {
          if (layout == 2 || layout == 3) continue;  // it has no in-place form
          const std::int64_t row_count = salt % 4 == 0 ? 7 : 1;
          trials.push_back(Gather(dtype, Deal(total, size, pattern, salt), row_count, layout, salt));
          ++salt;
        }
      }
    }
  }
  // Rows that hold nothing.
  for (int layout = 0; layout < 2; ++layout) {
    trials.push_back(Gather(DType::kInt16, Deal(11, size, 1, 3), 0, layout, ++salt));
  }
  return trials;
}

class AllgatherMatrix : public ::testing::TestWithParam<int> {};

TEST_P(AllgatherMatrix, EveryCase) {
  const int size = GetParam();
  RunMatrix(size, AllgatherTrials(size), 60);
}

INSTANTIATE_TEST_SUITE_P(Sizes, AllgatherMatrix, ::testing::ValuesIn(MatrixSizes()));

// Inputs of several chunks that run out at different times; staged on all, on some, and on no rank.
TEST(AllgatherPaths, LargeAndOfVeryDifferentLengths) {
  for (const int size : {2, 3, 5}) {
    std::vector<Trial> trials;
    for (int pattern = 0; pattern < kNumPatterns; ++pattern) {
      for (const int layout : {0, 1, 4}) {
        const std::int64_t rows = kSanitized ? 10007 : 100003;
        trials.push_back(Gather(DType::kFloat32, Deal(rows, size, pattern, 1), 3, layout,
                                static_cast<unsigned>(pattern * 10 + layout)));
      }
    }
    RunMatrix(size, trials, 0);
    RunMatrix(size, trials, trials.size());
  }
}

}  // namespace
}  // namespace tf_smddp::testing

// Reduce-scatter: every size × type × op × factors × rows (even and not) × length of a row × layout, and to
// each root.
#include <vector>

#include "gtest/gtest.h"
#include "tests/cpp/testing/matrix.h"
#include "tests/cpp/testing/ranks.h"
#include "tests/cpp/testing/sanitizers.h"

namespace tf_smddp::testing {
namespace {

Trial Scatter(const Arithmetic& arithmetic, int size, std::int64_t rows, std::int64_t row_count, int layout,
              unsigned salt) {
  Trial trial;
  trial.kind = CollectiveKind::kReducescatter;
  trial.dtype = arithmetic.dtype;
  trial.op = arithmetic.op;
  trial.prescale = arithmetic.prescale;
  trial.postscale = arithmetic.postscale;
  trial.rows = rows;
  trial.row_count = row_count;
  trial.salt = salt;
  trial.placements = PlacementsOf(static_cast<Layout>(layout), size, salt);
  return trial;
}

std::vector<Trial> ReducescatterTrials(int size) {
  std::vector<Trial> trials;
  unsigned salt = 0;
  for (const std::int64_t rows : Counts(size)) {
    for (const Arithmetic& arithmetic : AllArithmetic()) {
      for (const int layout : {0, 1, 4}) {
        if (rows > 50000 && salt++ % 3 != 0) continue;  // the largest, in turn
        trials.push_back(Scatter(arithmetic, size, rows, salt % 4 == 0 ? 5 : 1, layout, salt));
        ++salt;
      }
      trials.push_back(Scatter(arithmetic, size, rows, 1, static_cast<int>(salt % 5), salt));
      trials.back().to_root = true;
      trials.back().root = static_cast<int>(salt) % size;
    }
  }
  trials.push_back(Scatter({DType::kInt16, ReduceOp::kSum, 1.0, 1.0}, size, 11, 0, 1, ++salt));
  return trials;
}

class ReducescatterMatrix : public ::testing::TestWithParam<int> {};

TEST_P(ReducescatterMatrix, EveryCase) {
  const int size = GetParam();
  RunMatrix(size, ReducescatterTrials(size), 60);
}

INSTANTIATE_TEST_SUITE_P(Sizes, ReducescatterMatrix, ::testing::ValuesIn(MatrixSizes()));

TEST(ReducescatterPaths, AloneAndLarge) {
  for (const int size : {2, 3, 5}) {
    std::vector<Trial> trials;
    for (const std::int64_t rows :
         kSanitized ? std::vector<std::int64_t>{20011} : std::vector<std::int64_t>{100003, 300000}) {
      for (const int layout : {0, 1, 4}) {
        trials.push_back(Scatter({DType::kFloat32, ReduceOp::kAverage, 1.0, 0.5}, size, rows, 3, layout,
                                 static_cast<unsigned>(rows + layout)));
        trials.push_back(trials.back());
        trials.back().to_root = true;
        trials.back().root = size - 1;
      }
    }
    RunMatrix(size, trials, 0);
    RunMatrix(size, trials, trials.size());
  }
}

}  // namespace
}  // namespace tf_smddp::testing

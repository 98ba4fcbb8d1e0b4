// Alltoall: every size × type × splits (even, uneven with zeros, all to one) × length of a row × layout.
#include <vector>

#include "gtest/gtest.h"
#include "tests/cpp/testing/matrix.h"
#include "tests/cpp/testing/ranks.h"
#include "tests/cpp/testing/sanitizers.h"

namespace tf_smddp::testing {
namespace {

// Each sender deals `total` rows in the pattern, some of them none.
Trial Exchange(DType dtype, int size, std::int64_t total, int pattern, std::int64_t row_count, int layout,
               unsigned salt) {
  Trial trial;
  trial.kind = CollectiveKind::kAlltoall;
  trial.dtype = dtype;
  for (int sender = 0; sender < size; ++sender) {
    const bool nothing = pattern != 0 && (static_cast<unsigned>(sender) + salt) % 4 == 3;
    trial.splits.push_back(Deal(nothing ? 0 : total, size, pattern, salt + static_cast<unsigned>(sender)));
  }
  trial.row_count = row_count;
  trial.salt = salt;
  trial.placements = PlacementsOf(static_cast<Layout>(layout), size, salt);
  return trial;
}

std::vector<Trial> AlltoallTrials(int size) {
  std::vector<Trial> trials;
  unsigned salt = 0;
  for (const std::int64_t total : Counts(size)) {
    for (const DType dtype : AllDTypes()) {
      for (int pattern = 0; pattern < kNumPatterns; ++pattern) {
        for (const int layout : {0, 1, 4}) {
          if (total > 50000 && salt++ % 3 != 0) continue;  // the largest, in turn
          trials.push_back(Exchange(dtype, size, total, pattern, salt % 4 == 0 ? 3 : 1, layout, salt));
          ++salt;
        }
      }
    }
  }
  trials.push_back(Exchange(DType::kInt16, size, 11, 1, 0, 1, ++salt));
  return trials;
}

class AlltoallMatrix : public ::testing::TestWithParam<int> {};

TEST_P(AlltoallMatrix, EveryCase) {
  const int size = GetParam();
  RunMatrix(size, AlltoallTrials(size), 60);
}

INSTANTIATE_TEST_SUITE_P(Sizes, AlltoallMatrix, ::testing::ValuesIn(MatrixSizes()));

TEST(AlltoallPaths, AloneAndLarge) {
  for (const int size : {2, 3, 5}) {
    std::vector<Trial> trials;
    for (int pattern = 0; pattern < kNumPatterns; ++pattern) {
      for (const int layout : {0, 1, 4}) {
        trials.push_back(Exchange(DType::kFloat32, size, kSanitized ? 10007 : 100003, pattern, 3, layout,
                                  static_cast<unsigned>(pattern * 10 + layout)));
      }
    }
    RunMatrix(size, trials, 0);
    RunMatrix(size, trials, trials.size());
  }
}

}  // namespace
}  // namespace tf_smddp::testing

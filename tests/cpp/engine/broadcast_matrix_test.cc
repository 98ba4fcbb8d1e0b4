// Broadcast: every size × root × type × count × layout.
#include <vector>

#include "gtest/gtest.h"
#include "tests/cpp/testing/matrix.h"
#include "tests/cpp/testing/ranks.h"
#include "tests/cpp/testing/sanitizers.h"

namespace tf_smddp::testing {
namespace {

std::vector<Trial> BroadcastTrials(int size) {
  std::vector<Trial> trials;
  unsigned salt = 0;
  for (const std::int64_t count : Counts(size)) {
    for (const DType dtype : AllDTypes()) {
      for (int layout = 0; layout < kNumHostLayouts; ++layout) {
        // Every root with every type and layout, and the roots spread over the counts.
        for (int root = static_cast<int>(salt) % 2; root < size; root += count > 1000 ? 3 : 1) {
          Trial trial;
          trial.kind = CollectiveKind::kBroadcast;
          trial.dtype = dtype;
          trial.root = root;
          trial.rows = count;
          trial.salt = ++salt;
          trial.placements = PlacementsOf(static_cast<Layout>(layout), size, salt);
          trials.push_back(trial);
        }
      }
    }
  }
  return trials;
}

class BroadcastMatrix : public ::testing::TestWithParam<int> {};

TEST_P(BroadcastMatrix, EveryCase) {
  const int size = GetParam();
  RunMatrix(size, BroadcastTrials(size), 60);
}

INSTANTIATE_TEST_SUITE_P(Sizes, BroadcastMatrix, ::testing::ValuesIn(MatrixSizes()));

TEST(BroadcastPaths, AloneAndLarge) {
  for (const int size : {2, 3, 5}) {
    std::vector<Trial> trials;
    for (int layout = 0; layout < kNumHostLayouts; ++layout) {
      for (int root = 0; root < size; ++root) {
        Trial trial;
        trial.kind = CollectiveKind::kBroadcast;
        trial.root = root;
        trial.rows = kSanitized ? 40009 : 300007;
        trial.salt = static_cast<unsigned>(10 * layout + root);
        trial.placements = PlacementsOf(static_cast<Layout>(layout), size, trial.salt);
        trials.push_back(trial);
      }
    }
    RunMatrix(size, trials, 0);
  }
}

}  // namespace
}  // namespace tf_smddp::testing

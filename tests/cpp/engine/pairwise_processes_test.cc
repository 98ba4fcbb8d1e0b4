// The pairwise selection of trials at each size, with ranks as processes.
#include <algorithm>
#include <cstddef>
#include <vector>

#include "gtest/gtest.h"
#include "tests/cpp/testing/limited_ranks.h"
#include "tests/cpp/testing/selection.h"
#include "tests/cpp/testing/trial.h"

namespace tf_smddp::testing {
namespace {

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

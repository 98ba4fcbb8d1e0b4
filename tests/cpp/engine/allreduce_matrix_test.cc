// Allreduce: every size × type × op × factors × count × layout, and the paths that configuration opens.
#include <algorithm>
#include <cstddef>
#include <vector>

#include "gtest/gtest.h"
#include "tests/cpp/testing/matrix.h"
#include "tests/cpp/testing/ranks.h"
#include "tests/cpp/testing/sanitizers.h"

namespace tf_smddp::testing {
namespace {

Trial Reduction(const Arithmetic& arithmetic, int size, std::int64_t count, int layout, unsigned salt) {
  Trial trial;
  trial.kind = CollectiveKind::kAllreduce;
  trial.dtype = arithmetic.dtype;
  trial.op = arithmetic.op;
  trial.prescale = arithmetic.prescale;
  trial.postscale = arithmetic.postscale;
  trial.rows = count;
  trial.salt = salt;
  trial.placements = PlacementsOf(static_cast<Layout>(layout), size, salt);
  return trial;
}

std::vector<Trial> AllreduceTrials(int size, const std::vector<std::int64_t>& counts) {
  std::vector<Trial> trials;
  unsigned salt = 0;
  for (const std::int64_t count : counts) {
    for (const Arithmetic& arithmetic : AllArithmetic()) {
      for (int layout = 0; layout < kNumHostLayouts; ++layout) {
        if (count > 50000 && salt++ % 3 != 0) continue;  // the largest, in turn
        trials.push_back(Reduction(arithmetic, size, count, layout, ++salt));
      }
    }
  }
  return trials;
}

class AllreduceMatrix : public ::testing::TestWithParam<int> {};

TEST_P(AllreduceMatrix, EveryCase) {
  const int size = GetParam();
  RunMatrix(size, AllreduceTrials(size, Counts(size)), 60);
}

TEST_P(AllreduceMatrix, OneMebiElements) {
  const int size = GetParam();
  std::vector<Trial> trials;
  unsigned salt = 0;
  for (const Arithmetic& arithmetic : AllArithmetic()) {
    if (++salt % (kSanitized ? 32 : 8) != 0) continue;
    trials.push_back(
        Reduction(arithmetic, size, 1 << 20, static_cast<int>(salt / 8 % kNumHostLayouts), salt));
  }
  RunMatrix(size, trials, 0);
}

INSTANTIATE_TEST_SUITE_P(Sizes, AllreduceMatrix, ::testing::ValuesIn(MatrixSizes()));

// The same requests on the paths that configuration opens: no small path, tiny chunks, tiny buckets, a tiny
// table whose rings wrap round.
TEST(AllreducePaths, ConfigurationDoesNotChangeResults) {
  const int size = 3;
  const std::vector<Tweak> tweaks = {
      [](int, Config* config) { config->small_bytes = 0; },
      [](int, Config* config) { config->chunk_bytes = 1024; },
      [](int, Config* config) { config->bucket_cap_bytes = 128; },
      [](int, Config* config) { config->table_slots = 128, config->bucket_cap_bytes = 4096; },
      [](int, Config* config) { config->small_bytes = 1 << 20; },
  };
  const std::vector<Trial> trials = AllreduceTrials(size, {0, 1, 33, 4097});
  for (const Tweak& tweak : tweaks) {
    RunRanks(
        size,
        [&](int, Engine& engine) {
          for (std::size_t begin = 0; begin < trials.size(); begin += 100) {
            const std::size_t end = std::min(trials.size(), begin + 100);
            RunAsGroup(engine, kWorld,
                       {trials.begin() + static_cast<std::ptrdiff_t>(begin),
                        trials.begin() + static_cast<std::ptrdiff_t>(end)},
                       static_cast<unsigned>(begin));
          }
        },
        tweak);
  }
}

// Small requests of which one rank has no room for a span go the staged way on all.
TEST(AllreducePaths, OneRanksArenaIsFull) {
  const int size = 3;
  RunRanks(size, [&](int rank, Engine& engine) {
    if (rank == 1) {
      for (std::uint64_t bytes = 16 << 20; bytes >= 64; bytes /= 2) {
        while (engine.arena()->Allocate(bytes) != nullptr) {
        }
      }
    }
    for (const int layout : {0, 2}) {
      RunAsGroup(engine, kWorld,
                 {Reduction({DType::kFloat32, ReduceOp::kSum, 1.0, 1.0}, size, 3, layout, 1),
                  Reduction({DType::kInt64, ReduceOp::kMax, 1.0, 1.0}, size, 100, layout, 2),
                  Reduction({DType::kFloat16, ReduceOp::kAverage, 1.0, 2.0}, size, 1000, layout, 3)},
                 0);
    }
  });
}

}  // namespace
}  // namespace tf_smddp::testing

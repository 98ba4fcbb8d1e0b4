// The axes of the collectives' test matrix.
#ifndef TF_SMDDP_TESTS_CPP_TESTING_MATRIX_H_
#define TF_SMDDP_TESTS_CPP_TESTING_MATRIX_H_

#include <cstdint>
#include <vector>

#include "kernels/common/types.h"
#include "tests/cpp/testing/trial.h"

namespace tf_smddp::testing {

// The location of all members' tensors. Each layout leads to another path of the engine. The last ones have
// tensors where the CPU may not touch them; the matrices that run in full do without them.
enum class Layout {
  kPrivate,
  kArena,
  kPrivateInPlace,
  kArenaInPlace,
  kMixed,
  kDevice,
  kDeviceInPlace,
  kDeviceMixed
};
inline constexpr int kNumHostLayouts = 5;
inline constexpr int kNumLayouts = 8;

// kMixed and kDeviceMixed differ by member, and with `salt`.
std::vector<Placement> PlacementsOf(Layout layout, int size, unsigned salt);

// The parameters of a reduction.
struct Arithmetic {
  DType dtype;
  ReduceOp op;
  double prescale;
  double postscale;
};

// Every dtype with every op that is defined for it; inexact types with and without factors.
std::vector<Arithmetic> AllArithmetic();

std::vector<DType> AllDTypes();

// The sizes that run the whole matrix: a few; with TF_SMDDP_TEST_ALL in the environment 1 to 8, fewer under
// sanitizers. pairwise_matrix_test has all sizes always.
std::vector<int> MatrixSizes();

// A count or number of rows for each path: none, one, around `size`, primes for the small path, for one chunk
// and for many.
std::vector<std::int64_t> Counts(int size);

// `total` rows dealt to `size` members: pattern 0 evenly, 1 unevenly with some that get none, 2 all to one.
std::vector<std::int64_t> Deal(std::int64_t total, int size, int pattern, unsigned salt);
inline constexpr int kNumPatterns = 3;

// Runs the trials in groups of at most `group` in a job of `size` ranks, which are threads; 0: each alone.
void RunMatrix(int size, const std::vector<Trial>& trials, std::size_t group);

}  // namespace tf_smddp::testing

#endif  // TF_SMDDP_TESTS_CPP_TESTING_MATRIX_H_

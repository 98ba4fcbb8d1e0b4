#include "tests/cpp/testing/matrix.h"

#include <algorithm>
#include <cstddef>
#include <cstdlib>

#include "gtest/gtest.h"
#include "tests/cpp/testing/ranks.h"
#include "tests/cpp/testing/sanitizers.h"

namespace tf_smddp::testing {

std::vector<Placement> PlacementsOf(Layout layout, int size, unsigned salt) {
  std::vector<Placement> placements;
  for (int member = 0; member < size; ++member) {
    const bool arena = layout == Layout::kArena || layout == Layout::kArenaInPlace;
    const bool device = layout == Layout::kDevice || layout == Layout::kDeviceInPlace;
    const bool in_place = layout == Layout::kPrivateInPlace || layout == Layout::kArenaInPlace ||
                          layout == Layout::kDeviceInPlace;
    Placement placement = {arena, arena, in_place, device, device};
    if (layout == Layout::kMixed || layout == Layout::kDeviceMixed) {
      const unsigned bits = (static_cast<unsigned>(member) * 3 + salt) * 2654435761u >> 16;
      placement = {(bits & 1) != 0, (bits & 2) != 0, (bits & 12) == 0};
      if (layout == Layout::kDeviceMixed) {
        placement.input_on_device = (bits & 16) != 0;
        placement.output_on_device = (bits & 32) != 0;
      }
    }
    placements.push_back(placement);
  }
  return placements;
}

std::vector<DType> AllDTypes() {
  std::vector<DType> all;
  for (int dtype = 0; dtype < kNumDTypes; ++dtype) all.push_back(static_cast<DType>(dtype));
  return all;
}

std::vector<Arithmetic> AllArithmetic() {
  std::vector<Arithmetic> all;
  for (const DType dtype : AllDTypes()) {
    for (int op = 0; op < kNumReduceOps; ++op) {
      if (!ReduceOpDefined(dtype, static_cast<ReduceOp>(op))) continue;
      all.push_back({dtype, static_cast<ReduceOp>(op), 1.0, 1.0});
      if (!IsInexact(dtype)) continue;
      all.push_back({dtype, static_cast<ReduceOp>(op), 0.3, 1.0});
      all.push_back({dtype, static_cast<ReduceOp>(op), -1.5, 1.0 / 3.0});
    }
  }
  return all;
}

std::vector<int> MatrixSizes() {
  // The engine counts ranks; it has no branch for one number of them above 1, so `make test` runs these.
  if (std::getenv("TF_SMDDP_TEST_ALL") == nullptr) return {1, 2, 3, 5};
  if (kThreadSanitizer) return {2, 3};
  if (kAddressSanitizer) return {1, 2, 3, 5};
  return {1, 2, 3, 4, 5, 6, 7, 8};
}

std::vector<std::int64_t> Counts(int size) {
  if (kSanitized) return {0, 1, size + 1, 5003};
  return {0, 1, size - 1, size, size + 1, 997, 5003, 70001};
}

std::vector<std::int64_t> Deal(std::int64_t total, int size, int pattern, unsigned salt) {
  std::vector<std::int64_t> rows(static_cast<std::size_t>(size), 0);
  const auto favourite = static_cast<std::size_t>(salt % static_cast<unsigned>(size));
  std::int64_t left = total;
  for (std::size_t member = 0; member < rows.size(); ++member) {
    if (pattern == 0) rows[member] = total / size;
    if (pattern == 1 && (member + salt) % 3 != 0) rows[member] = std::min(left, (total >> (member + 1)) + 1);
    left -= rows[member];
  }
  rows[favourite] += left;
  return rows;
}

void RunMatrix(int size, const std::vector<Trial>& trials, std::size_t group) {
  RunRanks(
      size,
      [&](int, Engine& engine) {
        if (group == 0) return RunAlone(engine, kWorld, trials);
        for (std::size_t begin = 0; begin < trials.size() && !::testing::Test::HasFatalFailure();
             begin += group) {
          const std::size_t end = std::min(trials.size(), begin + group);
          RunAsGroup(engine, kWorld,
                     {trials.begin() + static_cast<std::ptrdiff_t>(begin),
                      trials.begin() + static_cast<std::ptrdiff_t>(end)},
                     static_cast<unsigned>(begin));
        }
      },
      [](int, Config* config) { config->chunk_bytes = 64 << 10; });
}

}  // namespace tf_smddp::testing

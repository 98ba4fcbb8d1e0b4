#include "tests/cpp/testing/pairwise.h"

#include <cstddef>
#include <random>
#include <set>
#include <tuple>

namespace tf_smddp::testing {
namespace {

// Axis a, its value, axis b > a, its value.
using Pair = std::tuple<std::size_t, int, std::size_t, int>;

std::set<Pair> AllPairs(const std::vector<int>& axes) {
  std::set<Pair> pairs;
  for (std::size_t a = 0; a < axes.size(); ++a) {
    for (std::size_t b = a + 1; b < axes.size(); ++b) {
      for (int i = 0; i < axes[a]; ++i) {
        for (int j = 0; j < axes[b]; ++j) pairs.insert({a, i, b, j});
      }
    }
  }
  return pairs;
}

template <typename Body>
void ForPairsOf(const std::vector<int>& row, Body body) {
  for (std::size_t a = 0; a < row.size(); ++a) {
    for (std::size_t b = a + 1; b < row.size(); ++b) body(Pair{a, row[a], b, row[b]});
  }
}

}  // namespace

// Greedy: of some random rows that hold a pair not yet covered, the one that covers the most.
std::vector<std::vector<int>> Pairwise(const std::vector<int>& axes) {
  constexpr int kCandidates = 30;
  std::mt19937 random(1);
  std::set<Pair> missing = AllPairs(axes);
  std::vector<std::vector<int>> rows;
  while (!missing.empty()) {
    std::vector<int> best;
    std::size_t best_covers = 0;
    for (int candidate = 0; candidate < kCandidates; ++candidate) {
      std::vector<int> row;
      for (const int values : axes) row.push_back(static_cast<int>(random() % static_cast<unsigned>(values)));
      const auto& [a, i, b, j] = *missing.begin();
      row[a] = i;
      row[b] = j;
      std::size_t covers = 0;
      ForPairsOf(row, [&](const Pair& pair) { covers += missing.count(pair); });
      if (covers > best_covers) {
        best = row;
        best_covers = covers;
      }
    }
    ForPairsOf(best, [&](const Pair& pair) { missing.erase(pair); });
    rows.push_back(best);
  }
  return rows;
}

}  // namespace tf_smddp::testing

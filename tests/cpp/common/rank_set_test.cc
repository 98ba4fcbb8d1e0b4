#include "kernels/common/rank_set.h"

#include <random>
#include <set>
#include <vector>

#include "gtest/gtest.h"

namespace tf_smddp {
namespace {

std::vector<RankId> IdsOf(const std::set<int>& ranks) {
  std::vector<RankId> ids;
  for (const int rank : ranks) ids.push_back(RankId(rank));
  return ids;
}

TEST(RankSet, IsASet) {
  std::mt19937 random(1);
  for (int round = 0; round < 200; ++round) {
    RankSet a, b;
    std::set<int> in_a, in_b;
    const int limit = 1 + static_cast<int>(random() % 300);
    for (int i = static_cast<int>(random() % 40); i > 0; --i) {
      const int rank = static_cast<int>(random() % static_cast<unsigned>(limit));
      EXPECT_EQ(a.Add(RankId(rank)), in_a.insert(rank).second);
      const int other = static_cast<int>(random() % static_cast<unsigned>(limit));
      EXPECT_EQ(b.Add(RankId(other)), in_b.insert(other).second);
    }
    EXPECT_EQ(a.ranks(), IdsOf(in_a));
    EXPECT_EQ(a.size(), in_a.size());
    EXPECT_EQ(a.empty(), in_a.empty());
    for (int rank = -1; rank < 320; ++rank) EXPECT_EQ(a.Contains(RankId(rank)), in_a.count(rank) == 1);
    std::set<int> both, either = in_a;
    for (const int rank : in_b) {
      if (in_a.count(rank) == 1) both.insert(rank);
      either.insert(rank);
    }
    RankSet intersection = a, sum = a;
    intersection &= b;
    sum |= b;
    EXPECT_EQ(intersection.ranks(), IdsOf(both));
    EXPECT_EQ(intersection.empty(), both.empty());
    EXPECT_EQ(sum, RankSet(std::vector<int>(either.begin(), either.end())));
    EXPECT_EQ(a == b, in_a == in_b);
  }
}

TEST(RankSet, IsListed) {
  EXPECT_EQ(RankList(RankSet({7})), "rank 7");
  EXPECT_EQ(RankList(RankSet({2, 0, 130})), "ranks 0, 2, 130");
  std::vector<int> many;
  for (int rank = 0; rank < 64; ++rank) many.push_back(rank);
  for (const int rank : {70, 80, 81, 99}) many.push_back(rank);
  EXPECT_EQ(RankList(RankSet(many)), "ranks 0 to 63, 70, 80, 81, 99");
}

}  // namespace
}  // namespace tf_smddp

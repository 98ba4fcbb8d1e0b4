// Sets of ids and the ids themselves, against std::set: all sets of ids below 8, and all single ids and
// prefixes of the full range.
#include "kernels/common/rank_mask.h"

#include <gtest/gtest.h>

#include <set>
#include <type_traits>
#include <vector>

#include "kernels/common/rank_id.h"

namespace tf_smddp {
namespace {

// The index spaces do not convert into each other, into numbers, or from numbers.
static_assert(!std::is_convertible_v<int, RankId> && !std::is_convertible_v<RankId, int>);
static_assert(!std::is_constructible_v<RankId, MemberId> && !std::is_constructible_v<MemberId, RankId>);
static_assert(!std::is_constructible_v<MemberId, ParticipantId>);
static_assert(!std::is_convertible_v<std::uint64_t, MemberMask>);
static_assert(!std::is_constructible_v<MemberMask, IdMask<RankId>>);

// All functions are constexpr.
static_assert(MemberMask::FirstN(3).Without(MemberId(1)).size() == 2);
static_assert(MemberMask::Of(MemberId(63)).bits() == std::uint64_t{1} << 63);
static_assert(!MemberId().valid() && MemberId(0).valid());

constexpr int kSmall = 8;
constexpr unsigned kSets = 1u << kSmall;

std::set<int> BitsOf(unsigned bits) {
  std::set<int> expected;
  for (int id = 0; id < kSmall; ++id) {
    if ((bits >> id & 1) != 0) expected.insert(id);
  }
  return expected;
}

std::set<int> Listed(MemberMask mask) {
  std::set<int> listed;
  int before = -1;
  for (const MemberId member : mask) {
    EXPECT_LT(before, member.value());
    before = member.value();
    listed.insert(member.value());
  }
  return listed;
}

TEST(RankMask, HoldsWhatASetHolds) {
  for (unsigned bits = 0; bits < kSets; ++bits) {
    const MemberMask mask(bits);
    const std::set<int> expected = BitsOf(bits);
    ASSERT_EQ(Listed(mask), expected);
    ASSERT_EQ(mask.size(), static_cast<int>(expected.size()));
    ASSERT_EQ(mask.empty(), expected.empty());
    for (int id = 0; id < kSmall; ++id) {
      const MemberId member(id);
      ASSERT_EQ(mask.Contains(member), expected.count(id) == 1);
      std::set<int> changed = expected;
      changed.insert(id);
      ASSERT_EQ(Listed(mask.With(member)), changed);
      changed.erase(id);
      ASSERT_EQ(Listed(mask.Without(member)), changed);
    }
  }
}

TEST(RankMask, CombinesAsSetsDo) {
  for (unsigned a = 0; a < kSets; ++a) {
    for (unsigned b = 0; b < kSets; ++b) {
      const MemberMask left(a), right(b);
      ASSERT_EQ(Listed(left | right), BitsOf(a | b));
      ASSERT_EQ(Listed(left & right), BitsOf(a & b));
      ASSERT_EQ(Listed(left - right), BitsOf(a & ~b));
      ASSERT_EQ(left.ContainsAll(right), (left | right) == left);
      ASSERT_EQ(left == right, a == b);
      MemberMask changed = left;
      ASSERT_EQ(changed |= right, left | right);
      ASSERT_EQ(changed &= right, right);
      ASSERT_EQ(changed -= right, MemberMask());
    }
  }
}

TEST(RankMask, ReachesFrom0To63) {
  for (int id = 0; id < MemberMask::kCapacity; ++id) {
    const MemberMask alone = MemberMask::Of(MemberId(id));
    EXPECT_EQ(Listed(alone), std::set<int>{id});
    EXPECT_EQ(alone.bits(), std::uint64_t{1} << id);
  }
  for (int size = 0; size <= MemberMask::kCapacity; ++size) {
    const MemberMask first = MemberMask::FirstN(size);
    EXPECT_EQ(first.size(), size);
    const std::vector<MemberId> ids(first.begin(), first.end());
    std::vector<MemberId> expected;
    for (const MemberId member : FirstIds<MemberId>(size)) expected.push_back(member);
    EXPECT_EQ(ids, expected);
    EXPECT_EQ(static_cast<int>(expected.size()), size);
  }
}

// An id out of range comes from damaged shared memory, or is that of no rank.
TEST(RankMask, HoldsNoIdOutOfRange) {
  for (const int id : {-1, -2, 64, 65, 1000}) {
    EXPECT_FALSE(MemberMask::FirstN(64).Contains(MemberId(id)));
    EXPECT_TRUE(MemberMask::Of(MemberId(id)).empty());
    EXPECT_EQ(MemberMask(5).With(MemberId(id)), MemberMask(5));
    EXPECT_EQ(MemberMask(5).Without(MemberId(id)), MemberMask(5));
    EXPECT_EQ(MemberMask::FirstN(id), id < 0 ? MemberMask() : MemberMask(~std::uint64_t{0}));
  }
}

}  // namespace
}  // namespace tf_smddp

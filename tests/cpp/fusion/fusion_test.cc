#include <vector>

#include "gtest/gtest.h"
#include "kernels/fusion/bucket.h"
#include "kernels/fusion/fusion_buffer_manager.h"

namespace tf_smddp {
namespace {

constexpr std::uint64_t kCap = 1280;  // ten units

TEST(Bucket, UnitsRoundUpAndNeverVanish) {
  EXPECT_EQ(BucketUnits(0), 1u);
  EXPECT_EQ(BucketUnits(1), 1u);
  EXPECT_EQ(BucketUnits(128), 1u);
  EXPECT_EQ(BucketUnits(129), 2u);
}

TEST(Bucket, SealsAtTheCapOrTheGroupsEnd) {
  EXPECT_EQ(OpenAfter(0, 128, false, kCap), 1u);
  EXPECT_EQ(OpenAfter(8, 128, false, kCap), 9u);
  EXPECT_EQ(OpenAfter(9, 128, false, kCap), 0u);
  EXPECT_EQ(OpenAfter(0, kCap, false, kCap), 0u);
  EXPECT_EQ(OpenAfter(0, 10 * kCap, false, kCap), 0u);
  EXPECT_EQ(OpenAfter(0, 1, true, kCap), 0u);
}

class FusionTest : public ::testing::Test {
 protected:
  static constexpr std::size_t kCapacity = 64;

  FusionTest()
      : memory_(LaunchLog::Bytes(kCapacity) / 64 + 1),
        log_(reinterpret_cast<std::byte*>(memory_.data()), kCapacity),
        manager_(&log_, &groups_, kCap) {}

  // Which of the entries so far seal.
  std::vector<bool> Seals() const {
    std::vector<bool> seals;
    for (std::uint64_t i = 0; i < log_.Tail(); ++i) seals.push_back(log_.Read(i).seals);
    return seals;
  }

  struct alignas(64) Line {
    char bytes[64];
  };
  std::vector<Line> memory_;
  LaunchLog log_;
  GroupCounter groups_ = {};
  FusionBufferManager manager_;
};

TEST_F(FusionTest, TheRequestThatReachesTheCapSeals) {
  for (std::uint32_t i = 0; i < 5; ++i) EXPECT_TRUE(manager_.Add({i, 0}, 512, {}));
  EXPECT_EQ(Seals(), (std::vector<bool>{false, false, true, false, false}));
  EXPECT_TRUE(manager_.SealOpen());
  EXPECT_FALSE(manager_.SealOpen());
  EXPECT_EQ(Seals(), (std::vector<bool>{false, false, true, false, false, true}));
}

TEST_F(FusionTest, TheLastOfAGroupSeals) {
  const GroupPart group = {7, 3};
  EXPECT_TRUE(manager_.Add({0, 0}, 128, group));
  manager_.AddElsewhere(group);  // a small one of the same group
  EXPECT_TRUE(manager_.Add({1, 0}, 128, group));
  EXPECT_EQ(Seals(), (std::vector<bool>{false, true}));
}

TEST_F(FusionTest, OneThatIsAloneSeals) {
  EXPECT_TRUE(manager_.Add({0, 0}, 128, {}));
  EXPECT_TRUE(manager_.Add({1, 0}, 128, {0, 0, /*alone=*/true}));
  EXPECT_EQ(Seals(), (std::vector<bool>{false, true}));
}

TEST_F(FusionTest, TheLastOfAGroupSealsFromElsewhere) {
  const GroupPart group = {8, 2};
  EXPECT_TRUE(manager_.Add({0, 0}, 128, group));
  manager_.AddElsewhere(group);
  EXPECT_EQ(Seals(), (std::vector<bool>{false, true}));
}

TEST_F(FusionTest, GroupsAreCountedApart) {
  EXPECT_TRUE(manager_.Add({0, 0}, 128, {1, 2}));
  EXPECT_TRUE(manager_.Add({1, 0}, 128, {2, 2}));
  EXPECT_TRUE(manager_.Add({0, 0}, 128, {1, 2}));
  EXPECT_EQ(Seals(), (std::vector<bool>{false, false, true}));
}

TEST_F(FusionTest, NothingIsAddedToAClosedLog) {
  log_.Close();
  EXPECT_FALSE(manager_.Add({0, 0}, 128, {}));
  EXPECT_FALSE(manager_.SealOpen());
  EXPECT_EQ(log_.Tail(), 0u);
}

}  // namespace
}  // namespace tf_smddp

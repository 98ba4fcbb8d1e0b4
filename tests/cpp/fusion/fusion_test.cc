#include <vector>

#include "gtest/gtest.h"
#include "kernels/fusion/bucket.h"
#include "kernels/fusion/launch_order.h"

namespace tf_smddp {
namespace {

constexpr std::uint64_t kCap = 1280;  // ten units

TEST(Bucket, UnitsRoundUpAndNeverVanish) {
  EXPECT_EQ(BucketUnits(0), 1u);
  EXPECT_EQ(BucketUnits(1), 1u);
  EXPECT_EQ(BucketUnits(128), 1u);
  EXPECT_EQ(BucketUnits(129), 2u);
}

TEST(Bucket, SealsAtTheCapOrWhenAlone) {
  EXPECT_EQ(OpenAfter(0, 128, false, kCap), 1u);
  EXPECT_EQ(OpenAfter(8, 128, false, kCap), 9u);
  EXPECT_EQ(OpenAfter(9, 128, false, kCap), 0u);
  EXPECT_EQ(OpenAfter(0, kCap, false, kCap), 0u);
  EXPECT_EQ(OpenAfter(0, 10 * kCap, false, kCap), 0u);
  EXPECT_EQ(OpenAfter(0, 1, true, kCap), 0u);
}

class LaunchOrderTest : public ::testing::Test {
 protected:
  static constexpr std::size_t kCapacity = 64;

  LaunchOrderTest()
      : memory_(LaunchLog::Bytes(kCapacity) / 64 + 1),
        reports_memory_(memory_.size()),
        log_(reinterpret_cast<std::byte*>(memory_.data()), kCapacity),
        reports_(reinterpret_cast<std::byte*>(reports_memory_.data()), kCapacity),
        order_(&log_, &reports_, kCap) {}

  // Which of the entries so far seal.
  std::vector<bool> Seals() const {
    std::vector<bool> seals;
    for (std::uint64_t i = 0; i < log_.Tail(); ++i) seals.push_back(log_.Read(i).seals);
    return seals;
  }

  struct alignas(64) Line {
    char bytes[64];
  };
  std::vector<Line> memory_, reports_memory_;
  LaunchLog log_, reports_;
  LaunchOrder order_;
};

TEST_F(LaunchOrderTest, TheRequestThatReachesTheCapSeals) {
  for (std::uint32_t i = 0; i < 5; ++i) order_.Launch({i, 0}, 512, /*alone=*/false);
  EXPECT_EQ(Seals(), (std::vector<bool>{false, false, true, false, false}));
  EXPECT_TRUE(order_.SealOpen());
  EXPECT_FALSE(order_.SealOpen());
  EXPECT_EQ(Seals(), (std::vector<bool>{false, false, true, false, false, true}));
}

TEST_F(LaunchOrderTest, ARequestThatIsAloneSeals) {
  order_.Launch({0, 0}, 128, /*alone=*/false);
  order_.Launch({1, 0}, 128, /*alone=*/true);
  EXPECT_EQ(Seals(), (std::vector<bool>{false, true}));
}

TEST_F(LaunchOrderTest, ADoneRequestLeavesTheOpenBatchAsItIs) {
  order_.AnnounceDone({7, 0});
  EXPECT_FALSE(log_.HasOpenBatch());
  EXPECT_FALSE(order_.SealOpen());
  order_.Launch({0, 0}, 1152, /*alone=*/false);
  order_.AnnounceDone({8, 1});
  order_.Launch({1, 0}, 128, /*alone=*/false);
  EXPECT_EQ(Seals(), (std::vector<bool>{false, false, false, true}));
  EXPECT_EQ(log_.Read(2).state, LaunchLog::View::kDone);
  EXPECT_EQ(log_.Read(2).item, (Place{8, 1}.index()));
}

TEST_F(LaunchOrderTest, AReportToTheRelayLaunchesNothing) {
  order_.Launch({0, 0}, 128, /*alone=*/false);
  order_.ReportHostReady({5, 1});
  EXPECT_EQ(log_.Tail(), 1u);
  EXPECT_TRUE(log_.HasOpenBatch());
  ASSERT_EQ(reports_.Tail(), 1u);
  EXPECT_EQ(reports_.Read(0).item, (Place{5, 1}.index()));
  EXPECT_FALSE(reports_.HasOpenBatch());
}

TEST_F(LaunchOrderTest, NothingIsAddedToAClosedLog) {
  log_.Close();
  order_.Launch({0, 0}, 128, /*alone=*/false);
  order_.AnnounceDone({0, 0});
  EXPECT_FALSE(order_.SealOpen());
  EXPECT_EQ(log_.Tail(), 0u);
}

}  // namespace
}  // namespace tf_smddp

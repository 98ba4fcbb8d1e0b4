#include "kernels/control/launch_log.h"

#include <atomic>
#include <set>
#include <thread>
#include <vector>

#include "gtest/gtest.h"

namespace tf_smddp {
namespace {

struct alignas(64) LogLine {
  char bytes[64];
};

class LaunchLogTest : public ::testing::Test {
 protected:
  static constexpr std::size_t kCapacity = 16;

  LaunchLogTest()
      : memory_(LaunchLog::Bytes(kCapacity) / 64 + 1),
        log_(reinterpret_cast<std::byte*>(memory_.data()), kCapacity) {}

  std::vector<LogLine> memory_;
  LaunchLog log_;
};

std::uint64_t OneMore(std::uint64_t open) { return open + 1; }
std::uint64_t Seal(std::uint64_t) { return 0; }

TEST_F(LaunchLogTest, EntriesAppearInOrder) {
  EXPECT_EQ(log_.Read(0).state, LaunchLog::View::kUnpublished);
  EXPECT_TRUE(log_.Append(5, OneMore));
  EXPECT_TRUE(log_.HasOpenBatch());
  EXPECT_TRUE(log_.Append(6, Seal));
  EXPECT_FALSE(log_.HasOpenBatch());
  EXPECT_EQ(log_.Tail(), 2u);
  EXPECT_EQ(log_.Read(0).item, 5u);
  EXPECT_FALSE(log_.Read(0).seals);
  EXPECT_EQ(log_.Read(1).item, 6u);
  EXPECT_TRUE(log_.Read(1).seals);
  EXPECT_EQ(log_.Read(2).state, LaunchLog::View::kUnpublished);
}

TEST_F(LaunchLogTest, EntriesOfManyLapsAreToldApart) {
  for (std::uint64_t i = 0; i < 10 * kCapacity; ++i) {
    EXPECT_EQ(log_.Read(i).state, LaunchLog::View::kUnpublished);
    EXPECT_TRUE(log_.Append(i, Seal));
    EXPECT_EQ(log_.Read(i).item, i);
  }
}

TEST_F(LaunchLogTest, SealOpenAppendsOneMarker) {
  EXPECT_FALSE(log_.SealOpen());
  log_.Append(1, OneMore);
  EXPECT_TRUE(log_.SealOpen());
  EXPECT_FALSE(log_.SealOpen());
  EXPECT_EQ(log_.Read(1).state, LaunchLog::View::kMarker);
  EXPECT_TRUE(log_.Read(1).seals);
}

TEST_F(LaunchLogTest, ADoneEntryJoinsNoBatch) {
  EXPECT_TRUE(log_.AppendDone(3));
  EXPECT_FALSE(log_.HasOpenBatch());
  EXPECT_TRUE(log_.Append(4, OneMore));
  EXPECT_TRUE(log_.AppendDone(5));
  EXPECT_TRUE(log_.HasOpenBatch());
  EXPECT_EQ(log_.Read(0).state, LaunchLog::View::kDone);
  EXPECT_EQ(log_.Read(2).state, LaunchLog::View::kDone);
  EXPECT_EQ(log_.Read(2).item, 5u);
  EXPECT_FALSE(log_.Read(0).seals || log_.Read(2).seals);
  log_.Close();
  EXPECT_FALSE(log_.AppendDone(6));
}

TEST_F(LaunchLogTest, CloseStopsAppendsForGood) {
  log_.Append(1, OneMore);
  log_.Close();
  EXPECT_FALSE(log_.Append(2, OneMore));
  EXPECT_FALSE(log_.SealOpen());
  EXPECT_EQ(log_.Tail(), 1u);
  EXPECT_EQ(log_.Resolve(0).state, LaunchLog::View::kLaunched);
}

TEST_F(LaunchLogTest, ReopenContinuesBehindTheOldEntries) {
  log_.Append(1, OneMore);
  log_.Close();
  EXPECT_EQ(log_.Resolve(0).state, LaunchLog::View::kLaunched);
  log_.Reopen();
  EXPECT_FALSE(log_.HasOpenBatch());  // what was open is of the past
  EXPECT_FALSE(log_.SealOpen());
  EXPECT_TRUE(log_.Append(2, Seal));
  EXPECT_EQ(log_.Tail(), 2u);
  EXPECT_EQ(log_.Read(1).item, 2u);
  EXPECT_TRUE(log_.Read(1).seals);
}

// A corrupt tail does not make a reader loop forever.
TEST_F(LaunchLogTest, TheTailIsAtMostALapAhead) {
  log_.Append(1, Seal);
  EXPECT_EQ(log_.TailFrom(0), 1u);
  auto* tail = reinterpret_cast<std::atomic<std::uint64_t>*>(memory_.data());
  tail->store(~std::uint64_t{0});
  EXPECT_EQ(log_.TailFrom(1), 1u + kCapacity);
}

// An appender that dies, or is slow, between its two steps: seen by taking the first one away from it.
TEST_F(LaunchLogTest, AnUnpublishedEntryIsDroppedForAll) {
  log_.Append(1, OneMore);
  auto* entry = reinterpret_cast<std::atomic<std::uint64_t>*>(memory_.data()) + 8;
  const std::uint64_t published = entry->exchange(0);  // as if not yet published
  log_.Close();
  EXPECT_EQ(log_.Read(0).state, LaunchLog::View::kUnpublished);
  EXPECT_EQ(log_.Resolve(0).state, LaunchLog::View::kDropped);
  std::uint64_t expected = 0;
  EXPECT_FALSE(entry->compare_exchange_strong(expected, published));  // the late publication loses
  EXPECT_EQ(log_.Resolve(0).state, LaunchLog::View::kDropped);
}

TEST(LaunchLogConcurrency, AllReadersSeeTheSameSealedOrder) {
  constexpr std::size_t kCapacity = 1 << 14;
  constexpr int kAppenders = 4, kEach = 2000;
  std::vector<LogLine> memory(LaunchLog::Bytes(kCapacity) / 64 + 1);
  LaunchLog log(reinterpret_cast<std::byte*>(memory.data()), kCapacity);
  std::vector<std::thread> threads;
  for (int appender = 0; appender < kAppenders; ++appender) {
    threads.emplace_back([&, appender] {
      for (int i = 0; i < kEach; ++i) {
        log.Append(static_cast<std::uint64_t>(appender * kEach + i),
                   [](std::uint64_t open) { return open + 1 == 7 ? 0 : open + 1; });
        if (i % 100 == 0) log.SealOpen();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  log.SealOpen();
  std::set<std::uint64_t> items;
  int in_batch = 0;
  for (std::uint64_t i = 0; i < log.Tail(); ++i) {
    const LaunchLog::View view = log.Read(i);
    ASSERT_NE(view.state, LaunchLog::View::kUnpublished);
    if (view.state == LaunchLog::View::kLaunched) {
      EXPECT_TRUE(items.insert(view.item).second);
      ++in_batch;
    }
    ASSERT_LE(in_batch, 7);
    if (view.state == LaunchLog::View::kMarker) {
      EXPECT_GT(in_batch, 0);
    }
    if (view.seals) in_batch = 0;
  }
  EXPECT_EQ(in_batch, 0);
  EXPECT_EQ(items.size(), static_cast<std::size_t>(kAppenders * kEach));
}

}  // namespace
}  // namespace tf_smddp

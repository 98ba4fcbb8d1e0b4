#include "kernels/control/failure_record.h"

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "gtest/gtest.h"

namespace tf_smddp {
namespace {

class FailureRecordTest : public ::testing::Test {
 protected:
  const std::unique_ptr<FailureRecord> record_ = std::make_unique<FailureRecord>();
  const MemberMask members_ = MemberMask::FirstN(2);
};

TEST_F(FailureRecordTest, TheFirstOfAnIncarnationWins) {
  EXPECT_FALSE(record_->Failed(0));
  EXPECT_TRUE(record_->Begun(0));
  EXPECT_FALSE(record_->IsBroken(0));
  EXPECT_EQ(record_->StateOf(0), FailureRecord::State::kRuns);
  EXPECT_TRUE(record_->Raise(0, 5, "first"));
  EXPECT_FALSE(record_->Raise(0, 6, "second"));
  EXPECT_TRUE(record_->Failed(0));
  EXPECT_TRUE(record_->IsBroken(0));
  EXPECT_EQ(record_->StateOf(0), FailureRecord::State::kFailed);
  EXPECT_EQ(record_->StateOf(1), FailureRecord::State::kDamaged);
  EXPECT_EQ(record_->Text(), "first");
  EXPECT_EQ(record_->Origin(), 5u);
  EXPECT_TRUE(record_->Knows(5));
  EXPECT_FALSE(record_->Knows(6));
}

TEST_F(FailureRecordTest, TheLastMemberToDrainRestarts) {
  EXPECT_FALSE(record_->TryRestart(0, members_));  // it runs
  record_->Raise(0, 5, "gone");
  record_->Drained(0);
  EXPECT_FALSE(record_->TryRestart(0, members_));
  record_->Drained(1);
  EXPECT_TRUE(record_->TryRestart(0, members_));
  EXPECT_FALSE(record_->TryRestart(0, members_));  // one only
  EXPECT_FALSE(record_->Begun(1));
  EXPECT_FALSE(record_->IsBroken(1));
  EXPECT_FALSE(record_->Raise(1, 6, "too early"));
  record_->Restart(0);
  EXPECT_TRUE(record_->Begun(1));
  EXPECT_TRUE(record_->IsBroken(0));
  EXPECT_FALSE(record_->Raise(0, 7, "too late"));
  EXPECT_TRUE(record_->Raise(1, 8, "in time"));
  EXPECT_EQ(record_->Text(), "in time");
  EXPECT_EQ(record_->Origin(), 8u);
  record_->Drained(0);
  EXPECT_FALSE(record_->TryRestart(1, members_));  // who drained before counts no more
}

TEST_F(FailureRecordTest, WhoWasTheLastToLeave) {
  record_->Raise(0, 5, "all have left", RankId(1));
  EXPECT_EQ(record_->LastToLeave(), RankId(1));
  record_->Drained(0);
  record_->Drained(1);
  ASSERT_TRUE(record_->TryRestart(0, members_));
  record_->Restart(0);
  record_->Raise(1, 6, "a failure");
  EXPECT_FALSE(record_->LastToLeave().valid());
}

TEST_F(FailureRecordTest, OriginsAreForgottenAfterSixtyFour) {
  const MemberMask one = MemberMask::FirstN(1);
  for (std::uint64_t incarnation = 0; incarnation < 65; ++incarnation) {
    ASSERT_TRUE(record_->Raise(incarnation, 100 + incarnation, "x"));
    record_->Drained(0);
    ASSERT_TRUE(record_->TryRestart(incarnation, one));
    record_->Restart(incarnation);
  }
  EXPECT_FALSE(record_->Knows(100));
  EXPECT_TRUE(record_->Knows(101));
  EXPECT_TRUE(record_->Knows(164));
}

TEST_F(FailureRecordTest, LongTextsAreCut) {
  record_->Raise(0, 1, std::string(100000, 'x'));
  EXPECT_EQ(record_->Text(), std::string(4095, 'x'));
  const auto japanese = std::make_unique<FailureRecord>();
  japanese->Raise(0, 1, std::string(4093, 'x') + "重み");
  EXPECT_EQ(japanese->Text(), std::string(4093, 'x'));
}

TEST_F(FailureRecordTest, OneOfManyThreadsRaisesAndOneRestarts) {
  constexpr int kThreads = 4;
  const MemberMask members = MemberMask::FirstN(kThreads);
  std::atomic<int> raised{0}, restarted{0};
  std::vector<std::thread> threads;
  for (int thread = 0; thread < kThreads; ++thread) {
    threads.emplace_back([&, thread] {
      for (std::uint64_t incarnation = 0; incarnation < 500; ++incarnation) {
        while (!record_->Begun(incarnation)) std::this_thread::yield();
        const std::string text = "thread " + std::to_string(thread) + " in " + std::to_string(incarnation);
        if (record_->Raise(incarnation, incarnation * kThreads + static_cast<std::uint64_t>(thread) + 1,
                           text))
          raised.fetch_add(1);
        while (record_->StateOf(incarnation) != FailureRecord::State::kFailed) std::this_thread::yield();
        ASSERT_EQ(record_->Text(), "thread " + std::to_string((record_->Origin() - 1) % kThreads) + " in " +
                                       std::to_string(incarnation));
        record_->Drained(thread);
        if (!record_->TryRestart(incarnation, members)) continue;
        restarted.fetch_add(1);
        record_->Restart(incarnation);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(raised.load(), 500);
  EXPECT_EQ(restarted.load(), 500);
}

}  // namespace
}  // namespace tf_smddp

// SpinBudget: it learns whether spinning pays.
#include "kernels/engine/core/spin_budget.h"

#include <gtest/gtest.h>

namespace tf_smddp {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr Clock::duration kMost = microseconds(100), kNone{};

class SpinBudgetTest : public ::testing::Test {
 protected:
  // The time that a call every 10 us spins, all in vain, within `time`.
  Clock::duration SpendInVain(Clock::duration time) {
    Clock::duration spent{};
    for (const Clock::time_point end = now_ + time; now_ < end; now_ += microseconds(10)) {
      const Clock::duration next = budget_.Next(now_);
      if (next == kNone) continue;
      budget_.InVain();
      spent += next;
      now_ += next;
    }
    return spent;
  }

  Clock::time_point now_ = Clock::time_point(seconds(1000));
  SpinBudget budget_{kMost};
};

TEST_F(SpinBudgetTest, GoesOnWhileItPaysNowAndThen) {
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(budget_.Next(now_), kMost);
    i % 4 == 3 ? budget_.Paid() : budget_.InVain();
  }
}

TEST_F(SpinBudgetTest, GivesUpSoonWhereItIsInVain) {
  EXPECT_LE(SpendInVain(microseconds(900)), 5 * kMost);
  EXPECT_EQ(budget_.Next(now_), kNone);
}

TEST_F(SpinBudgetTest, TriesAgainForAHundredthOfTheTime) {
  SpendInVain(seconds(1));
  const Clock::duration spent = SpendInVain(seconds(10));
  EXPECT_GT(spent, milliseconds(50));
  EXPECT_LE(spent, milliseconds(100));
}

TEST_F(SpinBudgetTest, ComesBackWhenATryPays) {
  SpendInVain(seconds(1));
  while (budget_.Next(now_) == kNone) now_ += microseconds(10);
  budget_.Paid();
  for (int i = 0; i < 10; ++i) {
    EXPECT_EQ(budget_.Next(now_), kMost);
    budget_.Paid();
  }
}

TEST(SpinBudgetWithTrialTest, ATrialLastsLonger) {
  const Clock::time_point now(seconds(1000));
  SpinBudget budget{kMost, 3 * kMost};
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(budget.Next(now), kMost);
    budget.InVain();
  }
  EXPECT_EQ(budget.Next(now), 3 * kMost);
  budget.InVain();
  EXPECT_EQ(budget.Next(now + kMost), kNone);
  EXPECT_EQ(budget.Next(now + seconds(1)), 3 * kMost);
  budget.Paid();
  EXPECT_EQ(budget.Next(now + seconds(1)), kMost);
}

TEST(SpinBudgetWithoutTimeTest, NeverSpins) {
  SpinBudget budget{kNone};
  budget.Paid();
  EXPECT_EQ(budget.Next(Clock::time_point(seconds(1))), kNone);
}

}  // namespace
}  // namespace tf_smddp

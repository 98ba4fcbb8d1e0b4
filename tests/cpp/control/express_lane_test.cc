#include "kernels/control/express_lane.h"

#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <future>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "tests/cpp/testing/sanitizers.h"

namespace tf_smddp {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;

struct alignas(64) CacheLine {
  char bytes[64];
};

class ExpressLaneTest : public ::testing::Test {
 protected:
  void Make(int members) {
    memory_.assign(ExpressLane::Bytes(members) / sizeof(CacheLine), CacheLine{});
    for (int member = 0; member < members; ++member) {
      lanes_.push_back(std::make_unique<ExpressLane>(reinterpret_cast<std::byte*>(memory_.data()), members,
                                                     member, abort_.get()));
    }
  }

  bool Meet(const std::unique_ptr<ExpressLane>& lane, std::chrono::nanoseconds patience) {
    return lane->Meet(patience, seconds(10), inputs_.data(), &behind_, &waited_);
  }

  std::vector<CacheLine> memory_;
  const std::unique_ptr<AbortRecord> abort_ = std::make_unique<AbortRecord>();
  std::vector<std::unique_ptr<ExpressLane>> lanes_;
  std::array<const void*, kMaxLocalRanks> inputs_{};
  std::chrono::nanoseconds waited_{};
  std::uint64_t behind_ = 0;
};

TEST_F(ExpressLaneTest, TheLastMemberToPostDoesNotWait) {
  Make(2);
  const int data[2] = {7, 8};
  lanes_[0]->Post(1, &data[0], sizeof data[0]);
  lanes_[1]->Post(1, &data[1], sizeof data[1]);
  for (const int member : {1, 0}) {
    ASSERT_TRUE(Meet(lanes_[static_cast<std::size_t>(member)], microseconds(0)));
    EXPECT_EQ(*static_cast<const int*>(inputs_[0]), 7);
    EXPECT_EQ(*static_cast<const int*>(inputs_[1]), 8);
    EXPECT_EQ(waited_.count(), 0);
  }
}

TEST_F(ExpressLaneTest, AMemberAloneWithdrawsAndLaterOnesDoNotMeetIt) {
  Make(3);
  for (std::uint64_t what = 1; what < 10; ++what) {
    for (const auto& lane : lanes_) {
      lane->Post(what, nullptr, 0);
      EXPECT_FALSE(Meet(lane, microseconds(1)));
    }
  }
  // The withdrawn posts do not prevent another meeting.
  for (const auto& lane : lanes_) lane->Post(10, nullptr, 0);
  for (const auto& lane : lanes_) EXPECT_TRUE(Meet(lane, seconds(10)));
}

TEST_F(ExpressLaneTest, DifferentKeysDoNotMeet) {
  Make(2);
  lanes_[0]->Post(1, nullptr, 0);
  lanes_[1]->Post(2, nullptr, 0);
  for (const auto& lane : lanes_) EXPECT_FALSE(Meet(lane, milliseconds(10)));
}

// Member 1 is in the state kLeaving and is slow to decide.
class OneIsLeaving : public ExpressLaneTest {
 protected:
  // Word 6 of member 1's line for the first meeting: its lowest bits are the state (express_lane.cc).
  enum State : std::uint64_t { kWithdrawn, kPosted, kLeaving };
  void Change(State from, State to) {
    auto* const word = reinterpret_cast<std::atomic<std::uint64_t>*>(memory_[1 * 2 + 1].bytes + 6 * 8);
    word->fetch_xor(from ^ to);
  }

  OneIsLeaving() {
    Make(2);
    for (const auto& lane : lanes_) lane->Post(1, nullptr, 0);
    Change(kPosted, kLeaving);
    meeting_ = std::async(std::launch::async, [this] {
      bool met = false;
      do {
        met = lanes_[0]->Meet(microseconds(1), milliseconds(1), inputs_.data(), &behind_, &waited_);
        told_ |= behind_;
      } while (behind_ != 0);
      return met;
    });
    // It cannot know yet.
    while (told_ == 0 && meeting_.wait_for(milliseconds(1)) == std::future_status::timeout) {
    }
    EXPECT_EQ(meeting_.wait_for(milliseconds(50)), std::future_status::timeout);
    EXPECT_EQ(told_, 0b10u);
  }

  std::future<bool> meeting_;
  std::atomic<std::uint64_t> told_{0};  // bits of all that it was told to be behind
};

TEST_F(OneIsLeaving, AndStays) {
  Change(kLeaving, kPosted);
  EXPECT_TRUE(meeting_.get());
}

TEST_F(OneIsLeaving, AndWithdraws) {
  Change(kLeaving, kWithdrawn);
  EXPECT_FALSE(meeting_.get());
}

TEST_F(OneIsLeaving, AndHasWithdrawnSomethingElseSince) {
  auto* const what = reinterpret_cast<std::atomic<std::uint64_t>*>(memory_[1 * 2 + 1].bytes + 7 * 8);
  what->store(2);
  Change(kLeaving, kWithdrawn);
  EXPECT_FALSE(meeting_.get());
}

TEST_F(OneIsLeaving, AndDies) {
  abort_->Raise("rank 1 died");
  EXPECT_FALSE(meeting_.get());
}

// Members that come at different times, try or don't, and wait for longer or shorter: they meet all or none,
// and read what was posted for that. Those who don't, wait for each other elsewhere.
TEST_F(ExpressLaneTest, AllMeetOrNone) {
  const int operations = testing::kSanitized ? 500 : 5'000;
  for (const int members : {2, 3, 5}) {
    lanes_.clear();
    Make(members);
    std::vector<std::atomic<int>> met(static_cast<std::size_t>(operations) + 1);
    std::vector<std::atomic<int>> usual(met.size());
    std::vector<std::thread> threads;
    for (int member = 0; member < members; ++member) {
      threads.emplace_back([&, member] {
        std::mt19937 random(static_cast<unsigned>(member));
        ExpressLane& lane = *lanes_[static_cast<std::size_t>(member)];
        std::array<const void*, kMaxLocalRanks> inputs{};
        std::chrono::nanoseconds waited{};
        std::vector<std::uint32_t> data(ExpressLane::kMostBytes / 4);
        for (int operation = 1; operation <= operations; ++operation) {
          const std::size_t counts[] = {0, 1, 12, 13, 500, data.size()};
          const std::size_t count = counts[static_cast<std::size_t>(operation) % 6];
          const auto value = static_cast<std::uint32_t>(operation * 8);
          std::fill_n(data.begin(), count, value + static_cast<std::uint32_t>(member));
          if (random() % 50 == 0) std::this_thread::yield();
          bool meets = false;
          if (random() % 50 != 0) {
            lane.Post(static_cast<std::uint64_t>(operation), data.data(), count * 4);
            const std::chrono::nanoseconds patience = random() % 4 == 0 ? microseconds(0) : milliseconds(5);
            std::uint64_t behind = 0;
            do {
              meets = lane.Meet(patience, microseconds(random() % 2), inputs.data(), &behind, &waited);
            } while (behind != 0);
          }
          const auto index = static_cast<std::size_t>(operation);
          if (meets) {
            ++met[index];
            for (int other = 0; other < members && count > 0; ++other) {
              const auto* posted = static_cast<const std::uint32_t*>(inputs[static_cast<std::size_t>(other)]);
              EXPECT_EQ(posted[0], value + static_cast<std::uint32_t>(other));
              EXPECT_EQ(posted[count - 1], value + static_cast<std::uint32_t>(other));
            }
          } else {
            ++usual[index];
            while (usual[index] < members && met[index] == 0) std::this_thread::yield();
          }
          EXPECT_TRUE(met[index] == 0 || usual[index] == 0) << "operation " << operation;
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    int meetings = 0;
    for (const std::atomic<int>& each : met) meetings += each == members ? 1 : 0;
    EXPECT_GT(meetings, 0) << "of " << members << " members";
    EXPECT_LT(meetings, operations);
  }
}

}  // namespace
}  // namespace tf_smddp

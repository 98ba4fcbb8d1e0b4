#include "kernels/control/readiness_table.h"

#include <atomic>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "gtest/gtest.h"

namespace tf_smddp {
namespace {

struct alignas(64) Line {
  char bytes[64];
};

class ReadinessTableTest : public ::testing::Test {
 protected:
  static constexpr std::size_t kSlots = 16;
  static constexpr int kRanks = 3;
  static constexpr std::uint64_t kEveryone = 7;

  ReadinessTableTest()
      : memory_(ReadinessTable::Bytes(kSlots, kRanks) / 64 + 1),
        table_(reinterpret_cast<std::byte*>(memory_.data()), kSlots, kRanks, &abort_) {}

  Arrival Arrive(std::uint32_t slot, std::uint64_t ticket, int rank, std::int64_t count = 4) {
    const Manifest manifest =
        MakeManifest(CollectiveKind::kAllreduce, DType::kFloat32, ReduceOp::kSum, -1, 0, 1, {count}, "x");
    const Cell cell = {static_cast<std::uint64_t>(rank) * 100, static_cast<std::uint64_t>(rank) * 100 + 1};
    return table_.Arrive(slot, ticket, rank, kEveryone, manifest, cell, &others_, &other_rank_);
  }

  AbortRecord abort_ = {};
  std::vector<Line> memory_;
  ReadinessTable table_;
  Manifest others_ = {};
  int other_rank_ = -1;
};

TEST_F(ReadinessTableTest, KeysHaveSlotsOfTheirOwn) {
  std::set<std::uint32_t> slots;
  for (std::size_t i = 0; i < kSlots; ++i) {
    std::uint32_t slot = 0, again = 1;
    ASSERT_TRUE(table_.FindSlot("key " + std::to_string(i), &slot).ok());
    ASSERT_TRUE(table_.FindSlot("key " + std::to_string(i), &again).ok());
    EXPECT_EQ(slot, again);
    EXPECT_TRUE(slots.insert(slot).second);
  }
}

TEST_F(ReadinessTableTest, FullIsAnErrorThatNamesKeyAndCapacity) {
  std::uint32_t slot = 0;
  for (std::size_t i = 0; i < kSlots; ++i)
    ASSERT_TRUE(table_.FindSlot("key " + std::to_string(i), &slot).ok());
  const Status status = table_.FindSlot("one more", &slot);
  EXPECT_EQ(status.code(), StatusCode::kInternal);
  EXPECT_NE(status.message().find("'one more'"), std::string::npos);
  EXPECT_NE(status.message().find("16"), std::string::npos);
  EXPECT_NE(status.message().find("SMDDP_TABLE_SLOTS"), std::string::npos);
}

TEST_F(ReadinessTableTest, LongKeysAreToldApart) {
  const std::string stem(300, 'k');
  std::uint32_t first = 0, second = 0, again = 0;
  ASSERT_TRUE(table_.FindSlot(stem + "1", &first).ok());
  ASSERT_TRUE(table_.FindSlot(stem + "2", &second).ok());
  ASSERT_TRUE(table_.FindSlot(stem + "1", &again).ok());
  EXPECT_NE(first, second);
  EXPECT_EQ(first, again);
}

TEST_F(ReadinessTableTest, TheLastToArriveIsToldSo) {
  EXPECT_EQ(Arrive(0, 0, 2), Arrival::kWaiting);
  EXPECT_EQ(Arrive(0, 0, 0), Arrival::kWaiting);
  EXPECT_EQ(table_.ArrivedMask(0, 0), 5u);
  EXPECT_EQ(Arrive(0, 0, 1), Arrival::kLast);
  EXPECT_EQ(table_.CellOf({0, 0}, 1).input_offset, 100u);
  EXPECT_EQ(table_.CellOf({0, 0}, 2).output_offset, 201u);
}

TEST_F(ReadinessTableTest, AGenerationServesOneTicketUntilAllAcknowledge) {
  for (int rank = 0; rank < kRanks; ++rank) Arrive(0, 0, rank);
  EXPECT_EQ(Arrive(0, 2, 0), Arrival::kBusy);  // the same parity
  EXPECT_EQ(table_.ArrivedMask(0, 0), kEveryone);
  EXPECT_EQ(table_.ArrivedMask(0, 2), 0u);        // these arrivals are not its own
  EXPECT_EQ(Arrive(0, 1, 0), Arrival::kWaiting);  // the other generation
  EXPECT_FALSE(table_.Acknowledge({0, 0}, 1, kEveryone));
  EXPECT_FALSE(table_.Acknowledge({0, 0}, 0, kEveryone));
  EXPECT_EQ(Arrive(0, 2, 0), Arrival::kBusy);
  EXPECT_TRUE(table_.Acknowledge({0, 0}, 2, kEveryone));
  EXPECT_EQ(Arrive(0, 2, 0), Arrival::kWaiting);
  EXPECT_EQ(Arrive(0, 2, 0), Arrival::kTwice);
}

TEST_F(ReadinessTableTest, AMismatchShowsTheOtherSide) {
  EXPECT_EQ(Arrive(3, 0, 1, 4), Arrival::kWaiting);
  EXPECT_EQ(Arrive(3, 0, 2, 5), Arrival::kMismatch);
  EXPECT_EQ(other_rank_, 1);
  EXPECT_EQ(others_.count, 4u);
  EXPECT_EQ(table_.ArrivedMask(3, 0), 2u);  // it has not entered
}

TEST(ReadinessTableConcurrency, ExactlyOneRankIsLast) {
  constexpr int kRanks = 4, kRounds = 2000;
  AbortRecord abort = {};
  std::vector<Line> memory(ReadinessTable::Bytes(16, kRanks) / 64 + 1);
  ReadinessTable table(reinterpret_cast<std::byte*>(memory.data()), 16, kRanks, &abort);
  std::atomic<int> lasts{0};
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < kRanks; ++rank) {
    ranks.emplace_back([&, rank] {
      const Manifest manifest =
          MakeManifest(CollectiveKind::kBarrier, DType::kUInt8, ReduceOp::kSum, -1, 0, 0, {0}, "b");
      for (int round = 0; round < kRounds; ++round) {
        std::uint32_t slot = 0;
        ASSERT_TRUE(table.FindSlot("round " + std::to_string(round % 8), &slot).ok());
        const auto ticket = static_cast<std::uint64_t>(round);
        Manifest others;
        int other_rank;
        Arrival arrival;
        while ((arrival = table.Arrive(slot, ticket, rank, 15, manifest, {}, &others, &other_rank)) ==
               Arrival::kBusy) {
          std::this_thread::yield();
        }
        ASSERT_TRUE(arrival == Arrival::kWaiting || arrival == Arrival::kLast);
        if (arrival == Arrival::kLast) lasts.fetch_add(1);
        const Place place = ReadinessTable::PlaceOf(slot, ticket);
        while (table.ArrivedMask(slot, ticket) != 15) std::this_thread::yield();
        table.Acknowledge(place, rank, 15);
      }
    });
  }
  for (std::thread& rank : ranks) rank.join();
  EXPECT_EQ(lasts.load(), kRounds);
}

}  // namespace
}  // namespace tf_smddp

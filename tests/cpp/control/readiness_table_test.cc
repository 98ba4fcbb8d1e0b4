#include "kernels/control/readiness_table.h"

#include <atomic>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "gtest/gtest.h"

namespace tf_smddp {
namespace {

struct alignas(64) TableLine {
  char bytes[64];
};

class ReadinessTableTest : public ::testing::Test {
 protected:
  static constexpr std::size_t kSlots = 16;
  static constexpr int kRanks = 3;
  static constexpr std::uint64_t kEveryone = 7;

  ReadinessTableTest()
      : memory_(ReadinessTable::Bytes({kSlots, kRanks}) / 64 + 1),
        table_(reinterpret_cast<std::byte*>(memory_.data()), {kSlots, kRanks}, &active_, &abort_) {}

  Arrival Arrive(std::uint32_t slot, std::uint64_t ticket, int rank, std::int64_t count = 4) {
    const Manifest manifest = MakeManifest({CollectiveKind::kAllreduce}, 0, 1, {count}, "x");
    const Cell cell = {static_cast<std::uint64_t>(rank) * 100, static_cast<std::uint64_t>(rank) * 100 + 1, 0,
                       0};
    return table_.Arrive(slot, ticket, rank, manifest, cell, &others_, &other_rank_);
  }

  AbortRecord abort_ = {};
  std::atomic<std::uint64_t> active_{kEveryone};
  std::vector<TableLine> memory_;
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

TEST_F(ReadinessTableTest, OnlyTheLastArrivalReturnsLast) {
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
  EXPECT_FALSE(table_.Acknowledge({0, 0}, 1));
  EXPECT_FALSE(table_.Acknowledge({0, 0}, 0));
  EXPECT_EQ(Arrive(0, 2, 0), Arrival::kBusy);
  EXPECT_TRUE(table_.Acknowledge({0, 0}, 2));
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

TEST_F(ReadinessTableTest, ARankThatIsNotActiveIsNotWaitedFor) {
  active_.store(5);
  EXPECT_EQ(Arrive(0, 0, 0), Arrival::kWaiting);
  EXPECT_EQ(Arrive(0, 0, 2), Arrival::kLast);
  EXPECT_EQ(table_.Participants(0, 0), 5u);
  EXPECT_FALSE(table_.Acknowledge({0, 0}, 0));
  EXPECT_TRUE(table_.Acknowledge({0, 0}, 2));
}

TEST_F(ReadinessTableTest, LeavingMakesRequestsReadyThatWaitForNoOtherRank) {
  std::uint32_t waits = 0, other = 0, begun = 0;
  ASSERT_TRUE(table_.FindSlot("waits for rank 1", &waits).ok());
  ASSERT_TRUE(table_.FindSlot("waits for ranks 1 and 2", &other).ok());
  ASSERT_TRUE(table_.FindSlot("ready already", &begun).ok());
  Arrive(waits, 1, 0);
  Arrive(waits, 1, 2);
  Arrive(other, 0, 0);
  for (int rank = 0; rank < kRanks; ++rank) Arrive(begun, 0, rank);
  active_.store(5);
  const std::vector<Place> ready = table_.MakeReadyAfterLeaving();
  ASSERT_EQ(ready.size(), 1u);
  EXPECT_EQ(ready[0].index(), (Place{waits, 1}).index());
  EXPECT_EQ(table_.Participants(waits, 1), 5u);
  EXPECT_EQ(table_.Participants(other, 0), 0u);
  EXPECT_EQ(table_.Participants(begun, 0), kEveryone);
  EXPECT_TRUE(table_.MakeReadyAfterLeaving().empty());
  EXPECT_EQ(Arrive(other, 0, 2), Arrival::kLast);
}

TEST_F(ReadinessTableTest, ClearFreesAllGenerationsAndKeepsTheKeys) {
  std::uint32_t slot = 0, again = 1;
  ASSERT_TRUE(table_.FindSlot("key", &slot).ok());
  Arrive(slot, 0, 0);
  for (int rank = 0; rank < kRanks; ++rank) Arrive(slot, 1, rank);
  table_.Acknowledge({slot, 1}, 2);
  table_.Clear();
  ASSERT_TRUE(table_.FindSlot("key", &again).ok());
  EXPECT_EQ(slot, again);
  const std::uint64_t next_incarnation = std::uint64_t{1} << 40;
  for (const std::uint64_t ticket : {next_incarnation, next_incarnation + 1}) {
    EXPECT_EQ(Arrive(slot, ticket, 1), Arrival::kWaiting);
    EXPECT_EQ(Arrive(slot, ticket, 0), Arrival::kWaiting);
    EXPECT_EQ(Arrive(slot, ticket, 2), Arrival::kLast);
    EXPECT_EQ(table_.Participants(slot, ticket), kEveryone);
  }
}

// Note [Leaving a communicator]: either the one who arrives or the one who leaves makes a request ready, and
// one alone.
TEST(ReadinessTableConcurrency, LeavingAndArriving) {
  constexpr int kRanks = 2, kRounds = 3000;
  AbortRecord abort = {};
  const Manifest manifest = MakeManifest({CollectiveKind::kBarrier, DType::kUInt8}, 0, 0, {0}, "b");
  for (int round = 0; round < kRounds; ++round) {
    std::atomic<std::uint64_t> active{3};
    std::vector<TableLine> memory(ReadinessTable::Bytes({4, kRanks}) / 64 + 1);
    ReadinessTable table(reinterpret_cast<std::byte*>(memory.data()), {4, kRanks}, &active, &abort);
    std::atomic<int> launches{0};
    std::thread leaver([&] {
      active.fetch_and(1, std::memory_order_seq_cst);
      launches.fetch_add(static_cast<int>(table.MakeReadyAfterLeaving().size()));
    });
    std::uint32_t slot = 0;
    ASSERT_TRUE(table.FindSlot("key", &slot).ok());
    Manifest others;
    int other_rank = -1;
    if (table.Arrive(slot, 0, 0, manifest, {}, &others, &other_rank) == Arrival::kLast) launches.fetch_add(1);
    leaver.join();
    ASSERT_EQ(launches.load(), 1) << "round " << round;
    ASSERT_EQ(table.Participants(slot, 0), 1u);
  }
}

TEST(ReadinessTableConcurrency, ExactlyOneRankIsLast) {
  constexpr int kRanks = 4, kRounds = 2000;
  AbortRecord abort = {};
  const std::atomic<std::uint64_t> everyone{15};
  std::vector<TableLine> memory(ReadinessTable::Bytes({16, kRanks}) / 64 + 1);
  ReadinessTable table(reinterpret_cast<std::byte*>(memory.data()), {16, kRanks}, &everyone, &abort);
  std::atomic<int> lasts{0};
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < kRanks; ++rank) {
    ranks.emplace_back([&, rank] {
      const Manifest manifest = MakeManifest({CollectiveKind::kBarrier, DType::kUInt8}, 0, 0, {0}, "b");
      for (int round = 0; round < kRounds; ++round) {
        std::uint32_t slot = 0;
        ASSERT_TRUE(table.FindSlot("round " + std::to_string(round % 8), &slot).ok());
        const auto ticket = static_cast<std::uint64_t>(round);
        Manifest others;
        int other_rank;
        Arrival arrival;
        while ((arrival = table.Arrive(slot, ticket, rank, manifest, {}, &others, &other_rank)) ==
               Arrival::kBusy) {
          std::this_thread::yield();
        }
        ASSERT_TRUE(arrival == Arrival::kWaiting || arrival == Arrival::kLast);
        if (arrival == Arrival::kLast) lasts.fetch_add(1);
        const Place place = table.PlaceOf(slot, ticket);
        while (table.Participants(slot, ticket) != 15) std::this_thread::yield();
        table.Acknowledge(place, rank);
      }
    });
  }
  for (std::thread& rank : ranks) rank.join();
  EXPECT_EQ(lasts.load(), kRounds);
}

}  // namespace
}  // namespace tf_smddp

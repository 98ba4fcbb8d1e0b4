#include "kernels/control/relay_message.h"

#include <cstdint>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/common/launch_environment.h"
#include "kernels/control/ticket.h"

namespace tf_smddp {
namespace {

using Messages = std::vector<RelayMessage>;

// One receiver's knowledge of one sender.
struct Receiver {
  Descriptions descriptions;
  KnownNumbers known;

  bool Decode(const std::string& bytes, Messages* messages) {
    messages->clear();
    return tf_smddp::Decode(bytes, &descriptions, &known,
                            [&](const RelayMessage& message) { messages->push_back(message); });
  }
};

bool Decode(const std::string& bytes, Messages* messages) { return Receiver().Decode(bytes, messages); }

// A message without a description.
RelayMessage Plain(RelayMessage::Kind kind = RelayMessage::kSeal) {
  RelayMessage message;
  message.kind = kind;
  return message;
}

class Sender {
 public:
  RelayMessage Ready(std::uint64_t ticket, const std::string& key,
                     const std::vector<std::int64_t>& shape = {64, 10}) {
    Description description;
    description.key_hash = 4;
    description.key = key;
    description.manifest = MakeManifest({CollectiveKind::kAllreduce}, 1, 2, shape, "a label of some length");
    RelayMessage message;
    message.ticket = ticket;
    message.incarnation = IncarnationOf(ticket);
    message.description = descriptions_.Share(std::move(description));
    return message;
  }

  std::string Send(Messages messages) {
    Number(&messages, &numbers_);
    return Encode(messages);
  }

 private:
  Descriptions descriptions_;
  SentNumbers numbers_;
};

TEST(RelayMessage, IsTheSameAfterItsWay) {
  Sender sender;
  RelayMessage message = sender.Ready(TicketOf(11, 3), "a key");
  message.parts = {{RankId(7), 8, {9, 10}}, {RankId(1), 2, {}}};
  message.origin = 12;
  message.text = "a text";
  message.rank = RankId(13);
  message.nccl = 22105;
  message.data = {"partial", "", std::string(3, '\0')};
  RelayMessage launch = message;
  launch.kind = RelayMessage::kLaunch;
  launch.last = RankId(0);
  launch.seals = true;
  RelayMessage turn = Plain(RelayMessage::kTurn);
  turn.communicator = 14;
  turn.ticket = 15;
  const std::string bytes = sender.Send({message, launch, turn});
  Messages all;
  ASSERT_TRUE(Decode(bytes, &all));
  EXPECT_EQ(Encode(all), bytes);
  ASSERT_EQ(all.size(), 3u);
  for (std::size_t i = 0; i < 2; ++i) {
    const RelayMessage& decoded = all[i];
    EXPECT_EQ(decoded.kind, i == 0 ? RelayMessage::kReady : RelayMessage::kLaunch);
    EXPECT_EQ(decoded.ticket, message.ticket);
    EXPECT_EQ(decoded.description->key, "a key");
    EXPECT_EQ(decoded.description->key_hash, 4u);
    EXPECT_TRUE(IdenticalManifests(decoded.description->manifest, message.description->manifest));
    ASSERT_EQ(decoded.parts.size(), 2u);
    EXPECT_EQ(decoded.parts[0].splits, (std::vector<std::uint64_t>{9, 10}));
    EXPECT_EQ(decoded.parts[1].rank, RankId(1));
    EXPECT_EQ(decoded.parts[1].rows, 2u);
    EXPECT_EQ(decoded.incarnation, 11u);
    EXPECT_EQ(decoded.origin, 12u);
    EXPECT_EQ(decoded.text, "a text");
    EXPECT_EQ(decoded.rank, RankId(13));
    EXPECT_EQ(decoded.nccl, 22105u);
    EXPECT_EQ(decoded.data, message.data);
    EXPECT_EQ(decoded.seals, i == 1);
    EXPECT_EQ(decoded.last, i == 0 ? RankId() : RankId(0));
  }
  EXPECT_EQ(all[2].communicator, 14u);
  EXPECT_EQ(all[2].ticket, 15u);
}

// Whoever gets a launch has the manifest.
TEST(RelayMessage, ALaunchDescribesTheKeyAlone) {
  Sender sender;
  RelayMessage launch = sender.Ready(1, "a key");
  launch.kind = RelayMessage::kLaunch;
  Messages decoded;
  ASSERT_TRUE(Decode(sender.Send({launch}), &decoded));
  EXPECT_EQ(decoded[0].description->key, "a key");
  EXPECT_TRUE(IdenticalManifests(decoded[0].description->manifest, Manifest{}));
}

// After a million steps and 200 failed ones, with a version of NCCL.
TEST(RelayMessage, AReportOfAKnownTensorHas16BytesAtMost) {
  constexpr std::uint32_t kTensors = 1000;
  Sender sender;
  Receiver receiver;
  for (const std::uint64_t step : {0, 1, 2, 1'000'000}) {
    Messages reports;
    for (std::uint32_t i = 0; i < kTensors; ++i) {
      reports.push_back(sender.Ready(TicketOf(200, step), "group/" + std::to_string(i), {i + 1, 3}));
      reports.back().nccl = 22105;
    }
    for (const std::string& bytes : {sender.Send({reports.front()}), sender.Send(reports)}) {
      Messages decoded;
      ASSERT_TRUE(receiver.Decode(bytes, &decoded));
      EXPECT_EQ(decoded.back().description->key, decoded.size() == 1 ? "group/0" : "group/999");
      EXPECT_EQ(decoded.back().description->manifest.dims[0], decoded.size() == 1 ? 1 : kTensors);
      EXPECT_TRUE(step == 0 || bytes.size() <= 16 * decoded.size()) << bytes.size();
    }
  }
}

// As for the tensor that the host reports: other shapes, another key, a description that comes back.
TEST(RelayMessage, ADescriptionIsSentOnce) {
  Sender sender;
  Receiver receiver;
  const auto send = [&](const std::string& key, std::int64_t rows) {
    const std::string bytes = sender.Send({sender.Ready(1, key, {rows, 2})});
    Messages decoded;
    EXPECT_TRUE(receiver.Decode(bytes, &decoded));
    EXPECT_EQ(decoded.at(0).description->key, key);
    EXPECT_EQ(decoded.at(0).description->manifest.dims[0], rows);
    return decoded[0].describes;
  };
  EXPECT_TRUE(send("a", 1));
  EXPECT_TRUE(send("a", 2));
  EXPECT_TRUE(send("b", 1));
  EXPECT_FALSE(send("a", 1));
  EXPECT_FALSE(send("b", 1));
  EXPECT_FALSE(send("a", 2));
}

// More than there are numbers: they begin again, and each stands for what was described last.
TEST(RelayMessage, NumbersBeginAgainWhenThereAreTooMany) {
  constexpr std::int64_t kDescriptions = SentNumbers::kMost + 100;
  Sender sender;
  Receiver receiver;
  Messages decoded;
  for (int round = 0; round < 3; ++round) {
    Messages reports;
    for (std::int64_t i = 0; i < kDescriptions; ++i) reports.push_back(sender.Ready(1, "key", {i, 2}));
    ASSERT_TRUE(receiver.Decode(sender.Send(std::move(reports)), &decoded));
    for (std::int64_t i = 0; i < kDescriptions; ++i) {
      ASSERT_EQ(decoded[static_cast<std::size_t>(i)].description->manifest.dims[0], i);
    }
  }
  EXPECT_EQ(receiver.known.size(), SentNumbers::kMost);
}

TEST(RelayMessage, ANumberThatNobodyHasGivenIsNone) {
  Sender sender;
  const std::string first = sender.Send({sender.Ready(1, "a")}), later = sender.Send({sender.Ready(2, "a")});
  Messages decoded;
  EXPECT_FALSE(Decode(later, &decoded));
  EXPECT_TRUE(Decode(first + later, &decoded));
  RelayMessage report = sender.Ready(1, "a");
  for (const bool describes : {false, true}) {
    for (const std::uint32_t number : {0u, 2u, SentNumbers::kMost + 1, ~0u}) {
      report.number = number;
      report.describes = describes;
      EXPECT_FALSE(Decode(Encode({report}), &decoded)) << number;
    }
  }
}

TEST(Descriptions, EqualOnesAreOneAndEqualKeysHaveOneNumber) {
  Sender here, there;
  Descriptions descriptions;
  const auto share = [&](Sender* sender, const std::string& key, std::int64_t rows) {
    return descriptions.Share(*sender->Ready(1, key, {rows}).description);
  };
  const SharedDescription a = share(&here, "a", 1);
  EXPECT_EQ(a, share(&there, "a", 1));
  EXPECT_NE(a, share(&here, "a", 2));
  EXPECT_EQ(a->key_number, share(&here, "a", 2)->key_number);
  EXPECT_NE(a->key_number, share(&here, "b", 1)->key_number);
  EXPECT_EQ(a->key_number, descriptions.KeyOf(*a)->key_number);
  // A description that nobody holds goes, and one that somebody holds stays.
  std::weak_ptr<const Description> gone = share(&here, "a", 3);
  for (std::int64_t rows = 10; rows < 5000; ++rows) share(&here, "a", rows);
  EXPECT_TRUE(gone.expired());
  EXPECT_EQ(a, share(&there, "a", 1));
}

TEST(RelayMessage, AHostGetsTheSplitsForItsOwnRanks) {
  RelayMessage message;
  message.parts = {{RankId(1), 6, {1, 2, 3}}, {RankId(4), 15, {4, 5, 6}}, {RankId(7), 2, {}}};
  EXPECT_TRUE(HasSplits(message));
  const RelayMessage narrowed = WithSplitsFor({0, 2}, message);
  EXPECT_EQ(narrowed.parts[0].splits, (std::vector<std::uint64_t>{1, 3}));
  EXPECT_EQ(narrowed.parts[1].splits, (std::vector<std::uint64_t>{4, 6}));
  EXPECT_TRUE(narrowed.parts[2].splits.empty());
  EXPECT_TRUE(WithSplitsFor({0, 3}, message).parts[0].splits.empty());  // they are damaged
  message.parts = {message.parts[2]};
  EXPECT_FALSE(HasSplits(message));
}

// Equal parts of ranks at equal distances take no more bytes for more ranks.
TEST(RelayMessage, KeepsThePartsOfManyRanksInFewBytes) {
  const auto sizes = [](int ranks, int step) {
    RelayMessage message = Plain();
    for (int i = 0; i < ranks; ++i) message.parts.push_back({RankId(3 + i * step), 5, {}});
    const std::string bytes = Encode({message});
    Messages decoded;
    EXPECT_TRUE(Decode(bytes, &decoded));
    EXPECT_EQ(decoded[0].parts.size(), static_cast<std::size_t>(ranks));
    EXPECT_EQ(decoded[0].parts.back().rank, RankId(3 + (ranks - 1) * step));
    EXPECT_EQ(decoded[0].parts.back().rows, 5u);
    return bytes.size();
  };
  EXPECT_LE(sizes(1000, 1), sizes(2, 1) + 1);
  EXPECT_LE(sizes(1000, 16), sizes(2, 1) + 1);
}

TEST(RelayMessage, PartsThatDifferComeAsTheyWere) {
  std::mt19937 random(1);
  for (int round = 0; round < 100; ++round) {
    RelayMessage message = Plain();
    for (int rank = 0; rank < 40; ++rank) {
      if (random() % 4 == 0) continue;
      RelayPart part{RankId(rank), random() % 3 == 0 ? 7u : 5u, {}};
      if (random() % 8 == 0) part.splits.resize(random() % 3 + 1, rank);
      message.parts.push_back(part);
    }
    Messages decoded;
    ASSERT_TRUE(Decode(Encode({message}), &decoded));
    ASSERT_EQ(decoded[0].parts.size(), message.parts.size());
    for (std::size_t i = 0; i < message.parts.size(); ++i) {
      EXPECT_EQ(decoded[0].parts[i].rank, message.parts[i].rank);
      EXPECT_EQ(decoded[0].parts[i].rows, message.parts[i].rows);
      EXPECT_EQ(decoded[0].parts[i].splits, message.parts[i].splits);
    }
  }
}

TEST(RelayMessage, ARankThatNoJobHasIsNone) {
  for (const auto kind : {RelayMessage::kShutDown, RelayMessage::kLeft, RelayMessage::kFail}) {
    for (const int rank : {-2, -1, 0, kMaxRanks - 1, kMaxRanks}) {
      RelayMessage message;
      message.kind = kind;
      message.rank = RankId(rank);
      const bool has_no_rank = rank == -1 && kind == RelayMessage::kFail;
      Messages decoded;
      EXPECT_EQ(Decode(Encode({message}), &decoded), has_no_rank || (rank >= 0 && rank < kMaxRanks)) << rank;
    }
  }
}

// Or the last messages are missing.
TEST(RelayMessage, CutOrLongerBytesAreNone) {
  Sender sender;
  RelayMessage message = sender.Ready(300, "a key");
  message.parts = {{RankId(1), 2, {3}}};
  message.data = {"data"};
  const std::string bytes = sender.Send({message});
  Messages decoded;
  for (std::size_t size = 1; size < bytes.size(); ++size) {
    EXPECT_FALSE(Decode(bytes.substr(0, size), &decoded)) << size;
  }
  EXPECT_TRUE(Decode(bytes, &decoded));
  EXPECT_FALSE(Decode(bytes + "x", &decoded));
}

}  // namespace
}  // namespace tf_smddp

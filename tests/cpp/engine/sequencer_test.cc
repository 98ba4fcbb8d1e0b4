// Which step gets a failure, and which request belongs to which incarnation: the sequencer by itself, in a
// fixed order.
#include "kernels/engine/core/sequencer.h"

#include <chrono>
#include <future>
#include <memory>
#include <set>
#include <string>
#include <utility>

#include "gtest/gtest.h"

namespace tf_smddp {
namespace {

constexpr StepId kFirst = 11, kSecond = 12, kThird = 13;

// One rank; "others" fail incarnations through the record, and the test is the progress thread.
class SequencerTest : public ::testing::Test {
 protected:
  static constexpr std::uint64_t kForeign = std::uint64_t{9} << 40;  // origins of another rank

  // Another rank fails the running incarnation.
  void FailElsewhere(const std::string& text) {
    ASSERT_TRUE(record_->Raise(incarnation_, kForeign + incarnation_, text));
  }

  // Does what the progress thread does about a failed incarnation; `delivered` if something was pending.
  void EndIncarnation(bool delivered) {
    sequencer_.Advance(record_->Origin(), record_->Text());
    ASSERT_TRUE(sequencer_.AllOut(incarnation_));
    sequencer_.Settle(delivered);
  }
  void BeginIncarnation() {
    record_->Restart(incarnation_++);
    std::uint64_t origin = 0;
    std::string text;
    EXPECT_FALSE(sequencer_.Open(&origin, &text));
  }
  void FailAndEnd(const std::string& text, bool delivered) {
    FailElsewhere(text);
    EndIncarnation(delivered);
    BeginIncarnation();
  }

  Status Submit(Pairing::Kind kind, StepId step, std::uint64_t ticket = 0, std::uint32_t index = 0) {
    Request request;
    request.step = step;
    request.pairing.kind = kind;
    request.pairing.ticket = ticket;
    request.pairing.param_index = index;
    request.pairing.num_params = 2;
    request.pairing.name = "loss";
    Status status = sequencer_.Enter(request, &position_, &tell_);
    if (status.ok()) sequencer_.Exit(position_.incarnation);
    return status;
  }

  std::uint64_t Draw(StepId step) {
    std::uint64_t ticket = 0;
    EXPECT_TRUE(sequencer_.DrawTicket(step, &ticket).ok());
    return ticket;
  }

  const std::unique_ptr<FailureRecord> record_ = std::make_unique<FailureRecord>();
  FailureMemory memory_{0};
  Sequencer sequencer_{&memory_, record_.get()};
  std::uint64_t incarnation_ = 0;
  Sequencer::Position position_;
  bool tell_ = false;
};

TEST_F(SequencerTest, NumbersStartAnewInEachIncarnation) {
  EXPECT_EQ(Draw(kFirst), 0u);
  EXPECT_EQ(Draw(kFirst), 1u);
  EXPECT_TRUE(Submit(Pairing::kSequence, kFirst).ok());
  EXPECT_TRUE(Submit(Pairing::kSequence, kFirst).ok());
  EXPECT_EQ(position_.ticket, 1u);
  FailAndEnd("gone", /*delivered=*/true);
  EXPECT_EQ(IncarnationOf(Draw(kSecond)), 1u);
  EXPECT_TRUE(Submit(Pairing::kSequence, kSecond).ok());
  EXPECT_EQ(position_.ticket, std::uint64_t{1} << 40);
  EXPECT_EQ(position_.incarnation, 1u);
}

TEST_F(SequencerTest, KeysOfDifferentPairingsDiffer) {
  std::set<std::string> keys;
  Pairing pairing;
  for (const auto kind : {Pairing::kGroup, Pairing::kSequence, Pairing::kOutOfBand, Pairing::kName}) {
    pairing.kind = kind;
    keys.insert(Sequencer::KeyOf(pairing, /*wired=*/false));
  }
  pairing.name = "loss";
  keys.insert(Sequencer::KeyOf(pairing, /*wired=*/false));
  pairing.kind = Pairing::kGroup;
  pairing.param_index = 1;
  keys.insert(Sequencer::KeyOf(pairing, /*wired=*/false));
  EXPECT_EQ(keys.size(), 6u);
}

TEST_F(SequencerTest, BetweenHostsATensorOfGroupsHasOneKey) {
  Pairing pairing;
  pairing.kind = Pairing::kGroup;
  pairing.param_index = 2;
  for (const std::uint64_t number : {0, 16, 1000}) {
    pairing.ticket = TicketOf(0, number);
    EXPECT_EQ(Sequencer::KeyBetweenHosts(Sequencer::KeyOf(pairing, /*wired=*/true)), "group/2");
  }
  for (const char* key : {"group/2", "sequence", "name/group/2/3"}) {
    EXPECT_EQ(Sequencer::KeyBetweenHosts(key), key);
  }
}

// Note [Places between hosts] in pending.h.
TEST_F(SequencerTest, BetweenHostsAGroupsTensorsHaveSoManyPlaces) {
  const auto places = [](std::uint32_t param_index) {
    std::set<std::pair<std::string, std::uint64_t>> distinct;
    Pairing pairing;
    pairing.kind = Pairing::kGroup;
    pairing.param_index = param_index;
    for (std::uint64_t number = 0; number < 10'000; ++number) {
      pairing.ticket = TicketOf(3, number);
      distinct.emplace(Sequencer::KeyOf(pairing, /*wired=*/true), number % Place::kMostGenerations);
    }
    return distinct.size();
  };
  EXPECT_EQ(places(0), 4096u);
  EXPECT_EQ(places(1), 2048u);
  EXPECT_EQ(places(160), 16u);
  EXPECT_EQ(places(100'000), 16u);
}

TEST_F(SequencerTest, OutOfBandHasASequenceOfItsOwn) {
  EXPECT_TRUE(Submit(Pairing::kSequence, kFirst).ok());
  EXPECT_TRUE(Submit(Pairing::kOutOfBand, kFirst).ok());
  EXPECT_EQ(position_.ticket, 0u);
  EXPECT_TRUE(Submit(Pairing::kOutOfBand, kFirst).ok());
  EXPECT_EQ(position_.ticket, 1u);
  EXPECT_TRUE(Submit(Pairing::kSequence, kFirst).ok());
  EXPECT_EQ(position_.ticket, 1u);
  FailAndEnd("gone", /*delivered=*/true);
  EXPECT_TRUE(Submit(Pairing::kOutOfBand, kSecond).ok());
  EXPECT_EQ(position_.ticket, std::uint64_t{1} << 40);
}

TEST_F(SequencerTest, ARankWithNothingPendingIsOwedTheFailureOnce) {
  FailAndEnd("gone", /*delivered=*/false);
  EXPECT_EQ(Submit(Pairing::kSequence, kFirst).message(), "gone");
  EXPECT_FALSE(tell_);
  EXPECT_EQ(Submit(Pairing::kSequence, kFirst).message(), "gone");  // the same step
  EXPECT_TRUE(Submit(Pairing::kSequence, kSecond).ok());
}

TEST_F(SequencerTest, SeveralFailuresAreOwedOneByOne) {
  FailAndEnd("first", false);
  FailAndEnd("second", false);
  std::uint64_t ticket = 0;
  EXPECT_EQ(sequencer_.DrawTicket(kFirst, &ticket).message(), "first");
  EXPECT_EQ(Submit(Pairing::kName, kSecond).message(), "second");
  EXPECT_EQ(IncarnationOf(Draw(kThird)), 2u);
}

TEST_F(SequencerTest, AStepWithATicketOfThatIncarnationGetsItsFailure) {
  const std::uint64_t ticket = Draw(kFirst);
  FailAndEnd("first", false);
  FailAndEnd("second", false);
  EXPECT_FALSE(Submit(Pairing::kGroup, kFirst, ticket).ok());
  // The one after it gets the other.
  EXPECT_EQ(Submit(Pairing::kSequence, kSecond).message(), "second");
  EXPECT_TRUE(Submit(Pairing::kSequence, kThird).ok());
}

TEST_F(SequencerTest, AStaleTicketOfAnotherStepTakesNothing) {
  const std::uint64_t ticket = Draw(kNoStep);
  FailAndEnd("first", true);
  FailAndEnd("second", false);
  EXPECT_FALSE(Submit(Pairing::kGroup, kNoStep, ticket).ok());
  EXPECT_EQ(Submit(Pairing::kSequence, kSecond).message(), "second");
}

TEST_F(SequencerTest, AStepThatFailsByItselfIsTheOneThatIsOwed) {
  FailAndEnd("gone", false);
  std::uint64_t incarnation = 7;
  EXPECT_FALSE(sequencer_.StartFailing(kFirst, &incarnation));
  EXPECT_TRUE(sequencer_.StartFailing(kSecond, &incarnation));
  EXPECT_EQ(incarnation, 1u);
}

TEST_F(SequencerTest, AGroupEndedUnsubmittedIsTheOneThatIsOwed) {
  const std::uint64_t ticket = Draw(kFirst);
  FailAndEnd("gone", false);
  StepId step = kNoStep;
  EXPECT_FALSE(sequencer_.EndGroup(ticket, /*failed=*/true, &step));
  EXPECT_TRUE(Submit(Pairing::kSequence, kSecond).ok());
}

// A step that fails by itself before it submits anything, in an incarnation that another rank's step has
// failed.
TEST_F(SequencerTest, AFailedStepWhoseGroupHasTakenTheFailureFailsNoOtherIncarnation) {
  for (const bool settled : {true, false}) {
    const StepId failing = settled ? kFirst : kSecond;
    const std::uint64_t ticket = Draw(failing);
    FailElsewhere("gone");
    sequencer_.Advance(record_->Origin(), record_->Text());
    if (settled) sequencer_.Settle(false);
    StepId step = kNoStep;
    EXPECT_FALSE(sequencer_.EndGroup(ticket, /*failed=*/true, &step));
    if (!settled) sequencer_.Settle(false);
    BeginIncarnation();
    std::uint64_t incarnation = 7;
    EXPECT_FALSE(sequencer_.StartFailing(failing, &incarnation));
    EXPECT_TRUE(Submit(Pairing::kSequence, kThird).ok());
  }
}

TEST_F(SequencerTest, AGroupThatIsWholeOrUnusedEndsWell) {
  StepId step = kNoStep;
  const std::uint64_t whole = Draw(kFirst), pruned = Draw(kFirst), part = Draw(kSecond),
                      unused = Draw(kThird);
  EXPECT_TRUE(Submit(Pairing::kGroup, kFirst, whole, 0).ok());
  EXPECT_TRUE(Submit(Pairing::kGroup, kFirst, whole, 1).ok());
  EXPECT_FALSE(sequencer_.EndGroup(whole, false, &step));
  EXPECT_FALSE(sequencer_.EndGroup(pruned, false, &step));
  EXPECT_TRUE(Submit(Pairing::kGroup, kSecond, part, 1).ok());
  EXPECT_TRUE(sequencer_.EndGroup(part, false, &step));
  EXPECT_EQ(step, kSecond);
  EXPECT_TRUE(sequencer_.EndGroup(unused, true, &step));
  EXPECT_FALSE(sequencer_.EndGroup(unused, true, &step));  // told before
}

TEST_F(SequencerTest, SaysWhetherAGroupIsWhole) {
  using GroupState = Sequencer::GroupState;
  const std::uint64_t ticket = Draw(kFirst), other = Draw(kFirst);
  EXPECT_TRUE(Submit(Pairing::kGroup, kFirst, ticket, 1).ok());
  EXPECT_EQ(position_.group, GroupState::kOpen);
  EXPECT_TRUE(Submit(Pairing::kOutOfBand, kFirst).ok());
  EXPECT_EQ(position_.group, GroupState::kNoGroup);
  EXPECT_TRUE(Submit(Pairing::kGroup, kFirst, other, 0).ok());
  EXPECT_EQ(position_.group, GroupState::kOpen);
  EXPECT_TRUE(Submit(Pairing::kGroup, kFirst, ticket, 0).ok());
  EXPECT_EQ(position_.group, GroupState::kWhole);
  const std::uint64_t stepless = Draw(kNoStep);
  EXPECT_TRUE(Submit(Pairing::kGroup, kNoStep, stepless, 1).ok());
  EXPECT_EQ(position_.group, GroupState::kOpen);
  EXPECT_TRUE(Submit(Pairing::kGroup, kNoStep, stepless, 0).ok());
  EXPECT_EQ(position_.group, GroupState::kWhole);
}

TEST_F(SequencerTest, TwinsAreRefusedAndTheOthersTold) {
  EXPECT_TRUE(Submit(Pairing::kName, kFirst).ok());
  EXPECT_EQ(Submit(Pairing::kName, kFirst).code(), StatusCode::kInvalidArgument);
  EXPECT_TRUE(tell_);
  sequencer_.NameEnded("loss", 0);
  EXPECT_TRUE(Submit(Pairing::kName, kFirst).ok());
  EXPECT_EQ(position_.ticket, 1u);
  const std::uint64_t ticket = Draw(kSecond);
  EXPECT_TRUE(Submit(Pairing::kGroup, kSecond, ticket, 1).ok());
  EXPECT_EQ(Submit(Pairing::kGroup, kSecond, ticket, 1).code(), StatusCode::kInvalidArgument);
  EXPECT_TRUE(tell_);
}

// A failure that this rank made of its step, while another rank's came first: both are one.
TEST_F(SequencerTest, TwoFailuresOfOneIncarnationAreOne) {
  std::uint64_t own = memory_.OriginOf(kFirst), origin = 0;
  memory_.RememberStep(kFirst, own, "mine");
  FailElsewhere("theirs");
  sequencer_.Excuse(0, own);
  EndIncarnation(/*delivered=*/false);
  BeginIncarnation();
  std::string text;
  ASSERT_TRUE(memory_.HasFailed(kFirst, &origin, &text));
  EXPECT_EQ(origin, kForeign);
  std::uint64_t incarnation = 0;
  EXPECT_FALSE(sequencer_.StartFailing(kFirst, &incarnation));  // the others know
  EXPECT_TRUE(Submit(Pairing::kSequence, kSecond).ok());        // and nothing is owed
}

// A group of no step that fails here, before and after another rank's failure: the user sees one.
TEST_F(SequencerTest, AGroupOfNoStepFailsItsOwnIncarnationOnly) {
  for (const bool delivered : {false, true}) {
    const std::uint64_t ticket = Draw(kNoStep);
    EXPECT_TRUE(sequencer_.StartFailingGroup(ticket));
    FailAndEnd("gone", delivered);
    EXPECT_FALSE(sequencer_.StartFailingGroup(ticket));
    EXPECT_TRUE(Submit(Pairing::kSequence, kNoStep).ok());  // nothing is owed
  }
}

TEST_F(SequencerTest, AFailureThatWasSeenInAnotherCommunicatorIsNotOwed) {
  FailElsewhere("gone");
  EndIncarnation(false);
  BeginIncarnation();
  memory_.Delivered(kForeign);
  EXPECT_TRUE(Submit(Pairing::kSequence, kFirst).ok());
}

// Note [Turns].
TEST_F(SequencerTest, ANewStepWaitsUntilTheFailedIncarnationHasEnded) {
  sequencer_.Excuse(0, memory_.OriginOf(kFirst));
  auto next = std::async(std::launch::async, [this] { return Draw(kSecond); });
  EXPECT_EQ(next.wait_for(std::chrono::milliseconds(50)), std::future_status::timeout);
  FailElsewhere("gone");
  EndIncarnation(false);
  EXPECT_EQ(IncarnationOf(next.get()), 1u);
}

TEST_F(SequencerTest, NothingWaitsAfterAnAbort) {
  sequencer_.Excuse(0, memory_.OriginOf(kFirst));
  auto next = std::async(std::launch::async, [this] { return Draw(kSecond); });
  EXPECT_EQ(next.wait_for(std::chrono::milliseconds(50)), std::future_status::timeout);
  sequencer_.Close();
  next.get();
}

TEST_F(SequencerTest, AFailureOfAnIncarnationThatHasNotBegunIsKept) {
  FailElsewhere("gone");
  EndIncarnation(true);
  EXPECT_FALSE(sequencer_.Postpone(0, 5, "of the past"));
  EXPECT_TRUE(sequencer_.Postpone(1, 6, "mine"));
  EXPECT_TRUE(sequencer_.Postpone(1, 7, "a second one"));
  EXPECT_TRUE(sequencer_.has_postponed());
  record_->Restart(0);
  std::uint64_t origin = 0;
  std::string text;
  EXPECT_TRUE(sequencer_.Open(&origin, &text));
  EXPECT_EQ(origin, 6u);
  EXPECT_EQ(text, "mine");
  EXPECT_FALSE(sequencer_.has_postponed());
}

}  // namespace
}  // namespace tf_smddp

#include "kernels/engine/hosts/relay.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <utility>
#include <vector>

#include "kernels/common/collective_info.h"
#include "kernels/engine/hosts/outside_parts.h"
#include "kernels/engine/hosts/relay_data.h"

namespace tf_smddp {
namespace {

// How long the head's answer is looked for every few microseconds. If a rank of another host is late, the
// wire's thread wakes this one when the answer comes, some hundred microseconds later.
constexpr std::chrono::milliseconds kAnswersSoon{2};

// The pause between two reports, for each host: twice the time that the head's thread needs for a message. Up
// to kFewHosts hosts the head has time for all. Its own host sends it none.
constexpr std::chrono::microseconds kPauseForEachHost{6};
constexpr std::size_t kFewHosts = 64;

Clock::duration PauseOf(Communicator& communicator) {
  const auto hosts = communicator.hosts().size();
  const bool is_head = communicator.head().value() == communicator.job().rank();
  return hosts > kFewHosts && !is_head ? hosts * kPauseForEachHost : Clock::duration::zero();
}

}  // namespace

Relay::Relay(MemberState* state, Submission* submission)
    : state_(state),
      submission_(submission),
      communicator_(state->communicator),
      group_(state->group),
      channel_{communicator_->id(), Wire::Channel::kOrder},
      pause_(PauseOf(*communicator_)),
      active_(MemberMask::FirstN(group_->size())) {
  if (communicator_->head().value() == communicator_->job().rank()) {
    RelayHead::Relay own;
    own.obey = [this](const RelayMessage& decision) { Obey(decision); };
    own.own_bytes = [this](const RelayMessage& decision) { return OwnBytes(decision); };
    head_ = std::make_unique<RelayHead>(state, &descriptions_, std::move(own));
  }
}

bool Relay::Step() {
  holds_back_ = false;
  bool moved = Receive();
  moved |= DrawTurns();
  CheckConnections();
  Retire();
  const FailureRecord& record = group_->segment().failure();
  if (record.Begun(incarnation_ + 1)) {
    ++incarnation_;
    if (std::exchange(returning_, false)) active_ = MemberMask::FirstN(group_->size());
  }
  // While an incarnation ends, the table is left alone (Note [Restart]). Before the members have begun, none
  // is active.
  if (record.StateOf(incarnation_) != FailureRecord::State::kRuns) return moved;
  if (group_->segment().active().load(std::memory_order_seq_cst) == 0) return moved;
  moved |= ReportReady();
  moved |= ReportMembers();
  SendToHead();
  moved |= FailWhenDrained();
  return moved;
}

bool Relay::SealOpen() { return head_ != nullptr && head_->SealOpen(); }

bool Relay::ReportReady() {
  LaunchLog& log = group_->segment().ready_log();
  bool moved = false;
  for (;; ++position_, moved = true) {
    const LaunchLog::View view = log.Read(position_);
    if (view.state == LaunchLog::View::kUnpublished) return moved;
    if (!moved) {
      const Clock::time_point now = Clock::now();
      holds_back_ = now < next_report_;
      if (holds_back_) return false;
      next_report_ = now + pause_;
    }
    const Place place = Place::FromIndex(view.item);
    ReadinessTable::HostReady ready;
    // An entry may be left from an incarnation that has failed.
    if (group_->table().Has(place) && group_->table().IsHostReady(place, &ready)) Report(ready);
  }
}

void Relay::Report(const ReadinessTable::HostReady& ready) {
  ReadinessTable& table = group_->table();
  RelayMessage message;
  message.kind = RelayMessage::kReady;
  message.incarnation = incarnation_;
  message.ticket = ready.ticket;
  const Manifest manifest = table.ManifestAt(ready.place);
  message.description = Describe(ready.place.slot, manifest);
  if (!reported_.try_emplace(KeyOf(message), ready.place).second) return;
  const bool all_of_host = ready.arrived.size() == group_->size() && !RowsMayDiffer(manifest.operation.kind);
  int kept = 0;  // so many have kept their tensors on GPUs
  for (const MemberId member : ready.arrived) {
    if (!all_of_host) message.parts.push_back(PartOf(ready, member, manifest));
    kept += table.CellOf(ready.place, member.value()).input_offset == kOnDevice ? 1 : 0;
  }
  if (communicator_->keeper() != nullptr) message.nccl = communicator_->keeper()->Version(&message.rank);
  if (kept != ready.arrived.size()) message.nccl = kNotKept;
  if (message.rank.valid()) message.nccl = kNoNccl;
  if (kept == 0 && GoesWithReport(*communicator_, manifest)) {
    message.data.push_back(PartialResult(communicator_, ready.place, manifest, ready.arrived));
  }
  reports_.push_back(std::move(message));
  answer_expected_until_ = Clock::now() + kAnswersSoon;
}

SharedDescription Relay::Describe(std::uint32_t slot, const Manifest& manifest) {
  Description description;
  const std::string key = group_->table().KeyText(slot);
  description.key = Sequencer::KeyBetweenHosts(key);
  if (description.key == key) description.key_hash = group_->table().KeyHash(slot);
  description.manifest = manifest;
  return descriptions_.Share(std::move(description));
}

void Relay::SendToHead() {
  if (reports_.empty()) return;
  if (head_ != nullptr) {
    for (const RelayMessage& report : std::exchange(reports_, {})) {
      head_->Take(report, RankId(communicator_->job().rank()));
    }
    return;
  }
  Number(&reports_, &numbers_);
  communicator_->wire().Send(communicator_->head(), channel_, Encode(reports_));
  reports_.clear();
}

RelayPart Relay::PartOf(const ReadinessTable::HostReady& ready, MemberId member, const Manifest& manifest) {
  const Cell cell = group_->table().CellOf(ready.place, member.value());
  RelayPart part;
  part.rank = RankId(group_->rank_of(member.value()));
  part.rows = cell.rows;
  if (!InfoOf(manifest.operation.kind).Is(kHasSplits)) return part;
  part.splits.resize(static_cast<std::size_t>(communicator_->size()));
  const std::size_t bytes = part.splits.size() * sizeof(std::uint64_t);
  const std::byte* splits = group_->view(member.value()).Resolve(cell.splits_offset, bytes);
  if (splits == nullptr) {
    communicator_->job().Abort("shared memory is corrupt: invalid splits for " + DescribeManifest(manifest));
  } else {
    std::memcpy(part.splits.data(), splits, bytes);
  }
  return part;
}

// Reports members that have left the communicator, or shut down.
bool Relay::ReportMembers() {
  const MemberMask here = MemberMask::FirstN(group_->size());
  const MemberMask active = MemberMask(group_->segment().active().load(std::memory_order_seq_cst)) & here;
  const MemberMask shut_down = MemberMask(communicator_->ShutDownMask()) & here;
  if (active == active_ && shut_down == shut_down_) return false;
  // Requests that are held back, or waited on this host for nobody but who has left. They had its part, or
  // never will.
  for (const ReadinessTable::HostReady& ready : group_->table().AllHostReady()) Report(ready);
  const auto report = [&](RelayMessage::Kind kind, MemberMask members) {
    for (const MemberId member : members) {
      RelayMessage message;
      message.kind = kind;
      message.rank = RankId(group_->rank_of(member.value()));
      reports_.push_back(message);
    }
  };
  report(RelayMessage::kLeft, active_ - active);
  report(RelayMessage::kShutDown, shut_down - shut_down_);
  active_ = active;
  shut_down_ = shut_down;
  return true;
}

// Takes one message: a look for another one takes some microseconds, for which what this one has brought
// would wait.
bool Relay::Receive() {
  Wire::Message received;
  if (!communicator_->wire().Receive(channel_, &received)) return false;
  const auto take = [&](const RelayMessage& message) { Take(message, received.from); };
  if (!Decode(received.bytes, &descriptions_, &known_[received.from.value()], take)) {
    communicator_->job().Abort("rank " + std::to_string(received.from.value()) +
                               " sent a message that this version does not understand");
  }
  return true;
}

void Relay::Take(const RelayMessage& message, RankId from) {
  switch (message.kind) {
    case RelayMessage::kReady:
    case RelayMessage::kFailed:
      if (head_ != nullptr) head_->Take(message, from);
      return;
    case RelayMessage::kLeft:
    case RelayMessage::kShutDown:
      return head_ != nullptr ? head_->Take(message, from) : Obey(message);
    case RelayMessage::kTurn:
      return head_ != nullptr ? head_->Publish(message) : Obey(message);
    case RelayMessage::kLaunch:
    case RelayMessage::kSeal:
    case RelayMessage::kFail:
    case RelayMessage::kWorks:
    case RelayMessage::kAbort:
      return Obey(message);
  }
}

// The bytes of this rank's part of a request; 0 if it has none, as when it has left.
std::uint64_t Relay::OwnBytes(const RelayMessage& launch) {
  const auto found = reported_.find(KeyOf(launch));
  if (found == reported_.end()) return 0;
  const PendingTable::Shared own = state_->pending.Find(found->second);
  return own != nullptr ? own->bytes : 0;
}

void Relay::Obey(const RelayMessage& message) {
  CommunicatorSegment& segment = group_->segment();
  switch (message.kind) {
    case RelayMessage::kLaunch:
      return Launch(message);
    case RelayMessage::kSeal:
      if (submission_->SealOpen()) group_->RingAll();
      return;
    case RelayMessage::kFail:
      failing_.push_back(message);
      segment.relay_waits().store(1, std::memory_order_seq_cst);
      return;
    case RelayMessage::kLeft:
      known_left_.Add(message.rank);
      if (communicator_->job().LocalRankOf(message.rank.value()) < 0) {
        segment.outside_left().store(message.rank.index() + 1, std::memory_order_seq_cst);
      }
      return;
    case RelayMessage::kShutDown:
      // A request that waits for the rank may be about to fail.
      return failing_.empty() ? NoteShutDown(message.rank) : failing_.push_back(message);
    case RelayMessage::kTurn:
      turns_.push_back(message);
      DrawTurns();
      return;
    case RelayMessage::kWorks:
      return communicator_->job().NoteWork(message.rank);
    case RelayMessage::kAbort:
      return communicator_->job().Abort(message.text);
    case RelayMessage::kReady:
    case RelayMessage::kFailed:
      return;
  }
}

// One that has no room yet holds up those behind it: the order must be the same on all hosts. There will be
// room, since the batches that have turns are not held up.
bool Relay::DrawTurns() {
  JobSegment& segment = communicator_->job().segment();
  bool moved = false;
  for (; !turns_.empty(); turns_.pop_front(), moved = true) {
    const std::uint64_t batch = turns_.front().ticket;
    const int region = segment.RegionOf(turns_.front().communicator);
    if (region < 0) continue;  // it has no members on this host
    TurnRecord& record = segment.turn_record(region);
    if (!record.HasRoomFor(batch)) return moved;
    if (!record.BeginToDraw(batch)) {
      communicator_->job().Abort("shared memory is corrupt: the turns of batches");
      return true;
    }
    record.Draw(&segment.turn_counter());
  }
  return moved;
}

void Relay::Launch(const RelayMessage& message) {
  if (message.nccl == kNoNccl) {
    group_->segment().cannot_keep().store(message.rank.index() + 1, std::memory_order_seq_cst);
  }
  const auto found = reported_.find(KeyOf(message));
  if (found == reported_.end()) {  // no member of this host takes part
    if (message.seals) submission_->SealOpen();
    return;
  }
  const Place place = found->second;
  reported_.erase(found);
  ReadinessTable& table = group_->table();
  const Manifest manifest = table.ManifestAt(place);
  const MemberId outside = group_->segment().outside();
  const bool on_devices = message.nccl > kNoNccl;
  const bool here_last = communicator_->job().LocalRankOf(message.last.value()) >= 0;
  Cell cell = {on_devices ? kOnDevice : kNotInArena, here_last ? kThisHostLast : kNotInArena, 0, kNotInArena};
  // With the result at hand, nobody asks what the other hosts have brought.
  const bool done = !message.data.empty();
  const bool has_parts = !done && !message.parts.empty();
  void* const parts = has_parts ? StoreOutsideParts(communicator_, message.parts, &cell) : nullptr;
  if (has_parts && parts == nullptr) return;  // the job was aborted
  Manifest other_manifest;
  int other_member = -1;
  const Arrival arrival = table.Arrive(place.slot, message.ticket, outside.value(), manifest, cell,
                                       &other_manifest, &other_member);
  if (arrival != Arrival::kLast) {
    if (arrival != Arrival::kAborted) {
      communicator_->job().Abort("shared memory is corrupt: the readiness table lost " +
                                 DescribeManifest(manifest));
    }
    return;
  }
  launched_.push_back({place, message.ticket, parts});
  if (done) {
    const MemberMask participants(table.Participants(place.slot, message.ticket));
    const MemberMask here = participants & MemberMask::FirstN(group_->size());
    WriteOutputs(communicator_, place, manifest, here, message.data.front());
  }
  table.Acknowledge(place, outside.value());  // before any member can, so the generation stays in use
  if (done) return submission_->AnnounceInTurn(place);
  submission_->LaunchInTurn(place, message.seals);
}

// Gives back the parts of requests that all members have acknowledged.
void Relay::Retire() {
  for (auto each = launched_.begin(); each != launched_.end();) {
    if (group_->table().ArrivedMask(each->place.slot, each->ticket) != 0) {
      ++each;
    } else {
      if (each->parts != nullptr) communicator_->job().arena().Free(each->parts);
      each = launched_.erase(each);
    }
  }
}

bool Relay::FailWhenDrained() {
  bool moved = false;
  for (; !failing_.empty(); moved = true) {
    const RelayMessage message = failing_.front();
    if (message.kind == RelayMessage::kShutDown) {
      NoteShutDown(message.rank);
    } else {
      const bool runs = !group_->segment().failure().Failed(incarnation_);
      if (!runs || !launched_.empty()) break;
      reported_.clear();
      communicator_->FailHere(message.incarnation, message.origin, message.text, message.rank);
      if (message.rank.valid()) {
        returning_ = true;
        known_left_ = RankSet();
      }
    }
    failing_.pop_front();
  }
  if (failing_.empty()) group_->segment().relay_waits().store(0, std::memory_order_seq_cst);
  return moved;
}

void Relay::NoteShutDown(RankId rank) {
  if (!known_shut_down_.Add(rank)) return;
  CommunicatorSegment& segment = group_->segment();
  if (communicator_->job().LocalRankOf(rank.value()) < 0 && !known_left_.Contains(rank)) {
    segment.outside_shut_down().store(1, std::memory_order_seq_cst);
  }
  if (communicator_->id() == kWorld) {
    communicator_->job()
        .segment()
        .shut_down(rank.value() / 64)
        .fetch_or(std::uint64_t{1} << rank.value() % 64);
  }
  segment.num_shut_down().fetch_add(1, std::memory_order_seq_cst);
  group_->RingAll();
}

void Relay::CheckConnections() {
  if (communicator_->id() != kWorld) return;
  const Wire::Loss loss = communicator_->wire().Lost();
  if (loss.reason.empty() || communicator_->job().aborted()) return;
  if (loss.rank.valid() && known_shut_down_.Contains(loss.rank)) return;
  communicator_->job().Abort(DescribeLoss(loss));
}

}  // namespace tf_smddp

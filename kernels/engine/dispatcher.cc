// Note [Leaving]: a rank that shuts down sets `left`, then rings everyone. A rank that arrives at a request
// sets its bit, then looks at `left`. Both are sequentially consistent, so of two ranks at least one notices:
// the one that leaves wakes a comm thread that finds the request waiting for it, or the one that arrives
// finds that the other has left.
#include "kernels/engine/dispatcher.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <memory>
#include <optional>
#include <utility>

#include "kernels/common/config.h"
#include "kernels/engine/own_callbacks.h"

namespace tf_smddp {

namespace {

// Not at a position of the small log.
constexpr std::uint64_t kNowhere = ~std::uint64_t{0};

// Callbacks that a stand-in calls itself. What follows more of them had better begin beside the first ones.
constexpr std::size_t kMostHeld = 4;

// Entries that a comm thread which is not rung may leave unread. The small log has room for four to a slot,
// of which readers in step use two (Note [The ring cannot overflow] in kernels/control/launch_log.h).
std::size_t MostAhead(const Config& config) {
  return static_cast<std::size_t>(std::min<std::int64_t>(config.table_slots, 1024));
}

Manifest ManifestOf(const Request& request) {
  return MakeManifest({request.kind, request.dtype, request.op, request.prescale, request.postscale,
                       request.root, request.pairing.param_index, request.pairing.num_params},
                      request.shape, request.label);
}

}  // namespace

// What has ended, and not been told.
struct Dispatcher::Delivery {
  std::vector<CompletionThread::Completion> completions;
  std::vector<DoneCallback> quick;
  bool retired = false;  // a generation, which a deferred request may wait for
};

Dispatcher::Dispatcher(Communicator* communicator, CompletionThread* completions, FailureMemory* memory,
                       StallWatch* stalls, CommunicatorCounters* counters, Timeline* timeline)
    : communicator_(communicator),
      completions_(completions),
      fusion_(&communicator->segment().launch_log(), &communicator->segment().groups(),
              static_cast<std::uint64_t>(communicator->config().bucket_cap_bytes)),
      memory_(memory),
      stalls_(stalls),
      counters_(counters),
      timeline_(timeline),
      pending_(MostAhead(communicator->config())),
      sequencer_(memory, &communicator->segment().failure()),
      express_(communicator) {}

Dispatcher::~Dispatcher() {
  std::vector<CompletionThread::Completion> completions;
  const std::string text = " failed: the process set was removed meanwhile";
  for (PendingTable::Shared& pending : pending_.Close(Internal("the process set was removed"))) {
    FreeSpans(*pending);
    Failed(pending->request, pending->submitted, pending->cost);
    completions.emplace_back(std::move(pending->request.done),
                             Internal(DescribeManifest(pending->manifest) + text));
  }
  stalls_->Ended(completions.size());
  completions_->Push(std::move(completions));
}

void Dispatcher::Refuse(const Status& reason) {
  pending_.Refuse(reason);
  sequencer_.Close();
}

std::uint64_t Dispatcher::Submit(Request&& request) {
  const Manifest manifest = ManifestOf(request);
  Sequencer::Position position;
  bool tell = false;
  Status status = sequencer_.Enter(request, &position, &tell);
  if (!status.ok()) {
    if (tell) FailStep(request.step, "on " + RankName() + ", " + status.message());
    Failed(request, Clock::now(), Cost());
    request.done({status.code(), DescribeManifest(manifest) + " failed: " + status.message()});
    return 0;
  }
  const std::uint64_t epoch = position.epoch;
  Clock::time_point submitted;
  if (RunExpress(request, manifest, position, &submitted)) {
    sequencer_.Exit(epoch);
    OwnCallbacks::Call(request.done, Status());  // only now: it may do anything
    return 0;
  }
  // Others may have met this one, and be at work on its tensor.
  if (communicator_->job().aborted()) communicator_->job().arena().Quarantine();
  const auto pending = std::make_shared<PendingRequest>();
  const std::uint64_t id = next_id_.fetch_add(1);
  pending->id = id;
  pending->request = std::move(request);
  pending->manifest = manifest;
  pending->ticket = position.ticket;
  pending->epoch = epoch;
  pending->open = position.open;
  pending->bytes = InputBytes(pending->request);
  pending->submitted = submitted;
  PendingTable::Added added = PendingTable::Added::kClosed;
  std::uint64_t done_at = kNowhere;
  status = communicator_->table().FindSlot(Sequencer::KeyOf(pending->request.pairing), &pending->slot);
  if (status.ok()) status = PlaceData(pending.get());
  if (status.ok()) {
    added = pending_.Add(pending, pending->open);
    if (added == PendingTable::Added::kEntered && !Enter(*pending, &done_at)) {
      added = PendingTable::Added::kDeferred;
    }
  }
  Delivery ahead;
  if (done_at != kNowhere) FinishAhead(*pending, done_at, &ahead);
  sequencer_.Exit(epoch);
  Deliver(std::move(ahead));  // only now: the callbacks may do anything
  if (added == PendingTable::Added::kEntered) return id;
  if (added == PendingTable::Added::kDeferred) {
    counters_->Deferred();
    communicator_->RingSelf();  // the comm thread tries again, and sees to it that it is rung
    return id;
  }
  if (!status.ok()) {
    // The other ranks run it, and would wait for this one.
    Fail(epoch, pending->request.step, RankName() + ": " + status.message());
  } else if (added == PendingTable::Added::kTwin) {
    status = InvalidArgument(DescribeManifest(pending->manifest) +
                             " was submitted twice in one execution of its group; give each tensor its own "
                             "param_index below num_params");
    // The other ranks may have taken theirs, and would wait for a second one from here.
    Fail(epoch, pending->request.step, "on " + RankName() + ", " + status.message());
  } else {
    status = pending_.refusal();
  }
  FreeSpans(*pending);
  stalls_->Ended(1);
  Failed(pending->request, submitted, pending->cost);
  pending->request.done(status);
  return 0;
}

// Says that the request has been submitted, and when, and tries to end it at once, in the epoch of
// `position`, which this thread is in. True when it is done, but for its callback.
bool Dispatcher::RunExpress(const Request& request, const Manifest& manifest,
                            const Sequencer::Position& position, Clock::time_point* submitted) {
  const std::uint64_t bytes = InputBytes(request);
  std::optional<Express::Try> express;
  if (position.open && !OwnCallbacks::TooDeep()) {
    express.emplace(&express_, request, manifest, position.ticket, bytes);
  }
  stalls_->Submitted(manifest, communicator_->id());  // while the other ranks' posts come
  Cost cost;
  const bool done = express.has_value() && express->Run(&cost);
  // After it, since looking at the clock takes a tenth of the time that it takes.
  const bool timed = timeline_->running();
  if (!done || timed) *submitted = Clock::now() - cost.waiting - cost.moving;
  if (!done) return false;
  // One rank for all.
  const Pairing& pairing = request.pairing;
  if (pairing.kind == Pairing::kGroup && pairing.num_params > 1 && communicator_->index() == 0 &&
      fusion_.AddElsewhere({position.ticket, pairing.num_params})) {
    communicator_->RingOthers();
    owed_ring_.store(true, std::memory_order_seq_cst);
  }
  cost.express = true;
  cost.in_place = bytes > 0 && request.output == request.input;
  stalls_->Ended(1);
  counters_->CompletedExpress(request.kind, bytes, cost);  // in this thread's turn
  if (timed) timeline_->Add(request, bytes, *submitted, cost, Clock::now());
  return true;
}

// Says where the tensor lies in shared memory. A small one in private memory moves into a span, so that the
// other ranks can reach it; when the arena is full it goes the staged way like a large one.
Status Dispatcher::PlaceData(PendingRequest* pending) {
  const Request& request = pending->request;
  Arena& arena = communicator_->job().arena();
  pending->cell = {0, 0, request.shape.empty() ? 1 : static_cast<std::uint64_t>(request.shape[0]),
                   kNotInArena};
  if (!request.splits.empty()) {
    pending->splits_bytes = request.splits.size() * sizeof(std::uint64_t);
    pending->splits = arena.Allocate(pending->splits_bytes);
    if (pending->splits == nullptr) {
      return Internal("the arena is full (" + std::to_string(arena.used_bytes()) +
                      " bytes in use): no room for the splits of " + DescribeManifest(pending->manifest) +
                      "; raise SMDDP_ARENA_BYTES");
    }
    auto* splits = static_cast<std::uint64_t*>(pending->splits);
    for (const std::int64_t rows : request.splits) *splits++ = static_cast<std::uint64_t>(rows);
    pending->cell.splits_offset = arena.OffsetOf(pending->splits, pending->splits_bytes);
  }
  if (pending->bytes == 0) return {};
  const bool all_outputs = FindCollective(request.kind).reach() == Collective::Reach::kAllOutputs;
  pending->cell.input_offset = arena.OffsetOf(request.input, pending->bytes);
  pending->cell.output_offset = all_outputs ? arena.OffsetOf(request.output, pending->bytes) : 0;
  const bool in_arena =
      pending->cell.input_offset != kNotInArena && pending->cell.output_offset != kNotInArena;
  if (in_arena || pending->bytes > static_cast<std::uint64_t>(communicator_->config().small_bytes)) return {};
  void* span = arena.Allocate(pending->bytes);
  if (span == nullptr) return {};
  std::memcpy(span, request.input, pending->bytes);
  pending->span = span;
  pending->cell.input_offset = pending->cell.output_offset = arena.OffsetOf(span, pending->bytes);
  return {};
}

void Dispatcher::FreeSpans(const PendingRequest& pending) {
  Arena& arena = communicator_->job().arena();
  if (pending.span != nullptr) arena.Free(pending.span);
  if (pending.splits != nullptr) arena.Free(pending.splits);
}

// `pending` is in pending_. From Arrive on, another thread may complete it: only what Submit wrote is read of
// it. False when its place serves another ticket: then it is among the deferred ones. Sets *done_at when it
// has been done on the spot: its position in the small log.
bool Dispatcher::Enter(const PendingRequest& pending, std::uint64_t* done_at) {
  // The comm thread delivers the error. What has been done in part must not be done again.
  if (communicator_->job().aborted()) return true;
  const Place place = pending.place();
  Manifest others;
  int other_member = -1;
  switch (communicator_->table().Arrive(pending.slot, pending.ticket, communicator_->index(),
                                        pending.manifest, pending.cell, &others, &other_member)) {
    case Arrival::kWaiting:
      if (communicator_->ShutDownMask() != 0) communicator_->RingSelf();  // the comm thread looks closer
      return true;
    case Arrival::kLast:
      Launch(pending, done_at);
      return true;
    case Arrival::kBusy:
      pending_.Defer(place);
      return false;
    case Arrival::kMismatch:
      FailOnMismatch(pending, others, other_member);
      return true;
    case Arrival::kTwice:
      Fail(pending.epoch, pending.request.step,
           RankName() + " ran " + DescribeManifest(pending.manifest) +
               " a second time while other ranks had not run it once; all ranks must run the same "
               "collectives");
      return true;
    case Arrival::kAborted:
      return true;  // the comm thread delivers the error
  }
  __builtin_unreachable();
}

void Dispatcher::Launch(const PendingRequest& pending, std::uint64_t* done_at) {
  const GroupPart group = pending.group();
  const Place place = pending.place();
  Work work;
  const Status status = PrepareWork(communicator_, pending, &work);
  if (!status.ok()) return FailWork(pending, status);
  // When an append is refused, the epoch has failed, and the comm thread delivers the error.
  if (pending.bytes <= static_cast<std::uint64_t>(communicator_->config().small_bytes) && work.reachable &&
      work.collective->reach() == Collective::Reach::kAllOutputs) {
    const Clock::time_point begin = Clock::now();
    work.collective->Direct(work.call, work.rank, work.inputs.data(), work.outputs.data(), 0,
                            work.call.count());
    counters_->Moved(pending.request.kind, Clock::now() - begin);
    const auto seal = [](std::uint64_t) { return std::uint64_t{0}; };
    std::uint64_t position = 0;
    if (communicator_->segment().small_log().Append(place.index(), seal, &position)) *done_at = position;
    communicator_->RingOthers();
    // Its own comm thread need not know at once.
    if (!fusion_.AddElsewhere(group)) return;
  } else {
    fusion_.Add(place, pending.bytes, group);
  }
  communicator_->RingOthers();
  if (!pending.request.assisted) return communicator_->RingSelf();
  owed_ring_.store(true, std::memory_order_seq_cst);
}

void Dispatcher::LaunchForOthers(const std::vector<Place>& places) {
  for (const Place place : places) fusion_.Add(place, 0, GroupPart{});
  communicator_->RingAll();
}

void Dispatcher::FailWork(const PendingRequest& pending, const Status& status) {
  if (status.code() == StatusCode::kInternal) {
    communicator_->job().Abort(status.message());
  } else {
    Fail(pending.epoch, pending.request.step, RankName() + ": " + status.message());
  }
}

void Dispatcher::FailOnMismatch(const PendingRequest& pending, const Manifest& others, int other_member) {
  const Pairing& pairing = pending.request.pairing;
  const std::string number = std::to_string(pending.ticket & ((std::uint64_t{1} << 40) - 1));
  std::string where;
  if (pairing.kind == Pairing::kGroup) where = "in group execution " + number;
  if (pairing.kind == Pairing::kSequence) where = "at collective " + number;
  if (pairing.kind == Pairing::kOutOfBand) where = "at out-of-band collective " + number;
  if (pairing.kind == Pairing::kName) where = "at use " + number + " of '" + pairing.name + "'";
  const int other_rank =
      other_member >= 0 && other_member < communicator_->size() ? communicator_->rank_of(other_member) : -1;
  Fail(
      pending.epoch, pending.request.step,
      "the ranks run different collectives " + where + " (counted from 0): " + RankName() + " has " +
          DescribeManifest(pending.manifest) + "; rank " + std::to_string(other_rank) + " has " +
          DescribeManifest(others) +
          ". All ranks must run the same collectives in the same order, with the same shapes, types and ops. "
          "Likely causes: one rank ran a collective more (a step more, a metric on one rank only), or the "
          "model or "
          "the batch differs between ranks");
}

// `step` is this rank's, and is the cause, or has been told of it.
void Dispatcher::Fail(std::uint64_t epoch, StepId step, const std::string& text) {
  // What a rank does after it has left is nothing to the others.
  if ((communicator_->segment().active().load() >> communicator_->index() & 1) == 0) return;
  const FailureRecord& record = communicator_->segment().failure();
  std::uint64_t origin = memory_->OriginOf(step);
  // The failure of this step has been dealt with here, in an earlier epoch; what it left in this one is
  // another.
  if (record.Knows(origin) && !record.IsBroken(epoch)) origin = memory_->NewOrigin();
  memory_->RememberStep(step, origin, text);
  memory_->Delivered(origin);
  sequencer_.Excuse(epoch, origin);  // first: the comm thread may deal with the failure at once
  // Between the failure of one epoch and the start of the next on all ranks, the next cannot fail yet.
  if (communicator_->Fail(epoch, origin, text)) return;
  if (sequencer_.Postpone(epoch, origin, text)) {
    communicator_->RingSelf();  // the comm thread sees to it that the epoch can begin
  } else {
    communicator_->Fail(epoch, origin, text);
  }
}

void Dispatcher::OpenEpoch() {
  std::uint64_t origin;
  std::string text;
  if (sequencer_.Open(&origin, &text)) communicator_->Fail(sequencer_.epoch(), origin, text);
}

bool Dispatcher::RetryDeferred() {
  MemberRecord& self = communicator_->self();
  if (!pending_.has_deferred()) {
    self.deferring.store(0, std::memory_order_seq_cst);
    return false;
  }
  // Set before the tries below look at the claims; whoever retires a generation frees its claim before it
  // looks here.
  self.deferring.store(1, std::memory_order_seq_cst);
  bool entered = false;
  std::size_t cursor = 0;
  // Only what is deferred now: one that is busy still goes to the back again.
  std::size_t left = 0;
  pending_.ForEach([&left](const PendingRequest&, bool is_entered) { left += is_entered ? 0 : 1; });
  for (; left > 0; --left) {
    const PendingTable::Shared pending = pending_.EnterDeferred(&cursor);
    if (pending == nullptr) break;
    std::uint64_t done_at = kNowhere;
    if (Enter(*pending, &done_at)) entered = true;  // else it was busy still
  }
  return entered;
}

void Dispatcher::CheckLeft(bool awaits_epoch) {
  const std::uint64_t left = communicator_->ShutDownMask();
  if (left == 0) return;
  const std::uint64_t waited_for = left & communicator_->segment().active().load(std::memory_order_seq_cst);
  const FailureRecord& record = communicator_->segment().failure();
  std::string text;
  pending_.ForEach([&](const PendingRequest& pending, bool entered) {
    if (record.IsBroken(pending.epoch)) return;  // before it left: the comm thread is about to deliver that
    const std::uint64_t arrived =
        entered ? communicator_->table().ArrivedMask(pending.slot, pending.ticket) : 0;
    const std::uint64_t missing = waited_for & ~arrived;
    if (missing == 0 || !text.empty() || (entered && IsReady(pending))) return;
    if (entered && (arrived >> communicator_->index() & 1) == 0)
      return;  // about to arrive, and to look itself
    text = communicator_->Names(missing) + " called shutdown(), but " + DescribeManifest(pending.manifest) +
           " on " + RankName() +
           " still waits for it. Likely cause: not all ranks ran the same number of steps";
  });
  if (text.empty() && waited_for != 0 && (awaits_epoch || sequencer_.has_postponed())) {
    text = communicator_->Names(waited_for) + " called shutdown() while a failed step was being ended on " +
           RankName() + ". Likely cause: not all ranks ran the same number of steps";
  }
  if (!text.empty()) communicator_->job().Abort(text);
}

void Dispatcher::Complete(const std::vector<PendingTable::Shared>& done, bool small,
                          std::vector<CompletionThread::Completion>* held) {
  const Clock::time_point now = Clock::now();
  Delivery delivery;
  for (const PendingTable::Shared& pending : done) Finish(pending, now, small, &delivery);
  Deliver(std::move(delivery), held);
}

// What this thread has done for all ranks is at an end for its own, too. Its comm thread would have to be
// woken, and to wake the completion thread; and the rank that comes last is the one that all wait for. In the
// epoch of the request: when that is over, its place in the table may be another's.
void Dispatcher::FinishAhead(const PendingRequest& pending, std::uint64_t position, Delivery* delivery) {
  const PendingTable::Shared taken = pending_.TakeAhead(pending.place(), pending.id, position);
  if (taken == nullptr) {
    communicator_->RingSelf();  // the comm thread has it already, or must catch up
    return;
  }
  Finish(taken, Clock::now(), /*small=*/true, delivery);
  if (OwnCallbacks::TooDeep()) return;
  for (CompletionThread::Completion& each : delivery->completions) {
    delivery->quick.push_back(std::move(each.first));  // not the comm thread: nothing needs to be quick
  }
  delivery->completions.clear();
}

void Dispatcher::Finish(const PendingTable::Shared& pending, Clock::time_point now, bool small,
                        Delivery* delivery) {
  const Request& request = pending->request;
  if (pending->span != nullptr && FindCollective(request.kind).reach() == Collective::Reach::kAllOutputs) {
    std::memcpy(request.output, pending->span, pending->bytes);
  }
  FreeSpans(*pending);
  delivery->retired |= communicator_->table().Acknowledge(pending->place(), communicator_->index());
  if (request.pairing.kind == Pairing::kName) sequencer_.NameEnded(request.pairing.name, pending->epoch);
  Cost& cost = pending->cost;
  cost.small = small;
  cost.in_place = pending->bytes > 0 && request.output == request.input;
  if (cost.waiting == Clock::duration::zero()) {
    cost.waiting = now - pending->submitted;  // in no batch of this rank's
  }
  counters_->Completed(request.kind, pending->bytes, cost);
  if (timeline_->running()) timeline_->Add(request, pending->bytes, pending->submitted, cost, now);
  if (request.quick) {
    delivery->quick.push_back(std::move(pending->request.done));
  } else {
    delivery->completions.emplace_back(std::move(pending->request.done), Status());
  }
}

void Dispatcher::Deliver(Delivery delivery, std::vector<CompletionThread::Completion>* held) {
  stalls_->Ended(delivery.completions.size() + delivery.quick.size());
  if (held != nullptr && held->size() + delivery.completions.size() <= kMostHeld) {
    std::move(delivery.completions.begin(), delivery.completions.end(), std::back_inserter(*held));
  } else {
    completions_->Push(std::move(delivery.completions));
  }
  if (delivery.retired) RingDeferring();
  for (const DoneCallback& done : delivery.quick) OwnCallbacks::Call(done, Status());
}

void Dispatcher::RingDeferring() {
  for (int member = 0; member < communicator_->size(); ++member) {
    if (communicator_->segment().member(member).deferring.load(std::memory_order_seq_cst) != 0) {
      communicator_->bell(member).Ring();
    }
  }
}

void Dispatcher::FailEpoch(std::uint64_t epoch, std::uint64_t origin, const std::string& text) {
  std::vector<CompletionThread::Completion> completions;
  for (PendingTable::Shared& pending : pending_.TakeEpoch(epoch)) {
    const std::string error = DescribeManifest(pending->manifest) + " failed: " + text;
    memory_->RememberStep(pending->request.step, origin, error);
    FreeSpans(*pending);
    Failed(pending->request, pending->submitted, pending->cost);
    completions.emplace_back(std::move(pending->request.done), Internal(error));
  }
  stalls_->Ended(completions.size());
  counters_->EpochFailed();
  sequencer_.Settle(!completions.empty());
  completions_->Push(std::move(completions));
}

void Dispatcher::Failed(const Request& request, Clock::time_point submitted, const Cost& cost) {
  counters_->Failed(request.kind);
  if (!timeline_->running()) return;
  timeline_->Add(request, InputBytes(request), submitted, cost, Clock::now(), /*failed=*/true);
}

void Dispatcher::FailAll(const std::string& text) {
  sequencer_.Close();
  std::vector<CompletionThread::Completion> completions;
  for (PendingTable::Shared& pending : pending_.Close(Internal(text))) {
    Failed(pending->request, pending->submitted, pending->cost);
    completions.emplace_back(std::move(pending->request.done),
                             Internal(DescribeManifest(pending->manifest) + " failed: " + text));
  }
  stalls_->Ended(completions.size());
  completions_->Push(std::move(completions));
}

// Bits of the members that `pending` waits for.
std::uint64_t Dispatcher::Missing(const PendingRequest& pending, bool entered) {
  CommunicatorSegment& segment = communicator_->segment();
  const std::uint64_t active = segment.active().load(std::memory_order_seq_cst);
  std::uint64_t missing;
  if (!segment.failure().Begun(pending.epoch)) {
    missing = active & ~segment.failure().DrainedMask();
  } else if (!entered) {
    missing = segment.table().HeldUpBy(pending.place());
  } else if (const std::uint64_t participants = segment.table().Participants(pending.slot, pending.ticket)) {
    missing = participants;  // its batch does not end, and any of them may be why
  } else {
    missing = active & ~segment.table().ArrivedMask(pending.slot, pending.ticket);
  }
  return missing & ~(std::uint64_t{1} << communicator_->index());
}

void Dispatcher::CollectWaiting(Clock::time_point before, std::vector<StallWatch::Waiting>* waiting) {
  const auto add = [&](const Manifest& manifest, Clock::time_point since, std::uint64_t missing, bool ready) {
    if (since > before || communicator_->ToRanks(missing) == 0) return;
    StallWatch::Waiting each;
    each.missing = communicator_->ToRanks(missing);
    each.members = communicator_->ToRanks(~std::uint64_t{0});
    each.submitted = since;
    each.request = {manifest, communicator_->id(), ready};
    waiting->push_back(each);
  };
  pending_.ForEach([&](const PendingRequest& pending, bool entered) {
    if (pending.submitted > before) return;  // Missing takes its time
    add(pending.manifest, pending.submitted, Missing(pending, entered), entered && IsReady(pending));
  });
  const Express::Late late = express_.late();
  add(late.manifest, late.since, late.behind, /*ready=*/true);
}

void Dispatcher::Cancel(std::uint64_t id, const std::string& reason) {
  std::string text;
  std::uint64_t epoch = 0;
  StepId step = kNoStep;
  pending_.ForEach([&](const PendingRequest& pending, bool entered) {
    if (pending.id != id || (entered && IsReady(pending))) return;
    text = RankName() + " withdrew " + DescribeManifest(pending.manifest) + ": " + reason;
    epoch = pending.epoch;
    step = pending.request.step;
  });
  if (!text.empty()) Fail(epoch, step, text);
}

void Dispatcher::CancelAll(const std::string& reason) {
  std::vector<std::uint64_t> ids;
  pending_.ForEach([&](const PendingRequest& pending, bool) { ids.push_back(pending.id); });
  for (const std::uint64_t id : ids) Cancel(id, reason);
}

void Dispatcher::EndGroup(std::uint64_t ticket, bool failed, const std::string& reason) {
  StepId step = kNoStep;
  if (!sequencer_.EndGroup(ticket, failed, &step)) return;
  Fail(Sequencer::EpochOf(ticket), step,
       RankName() + " ended a step before all tensors of its group had been submitted: " + reason);
}

void Dispatcher::FailStep(StepId step, const std::string& reason) {
  std::uint64_t epoch;
  if (sequencer_.StartFailing(step, &epoch)) Fail(epoch, step, reason);
}

}  // namespace tf_smddp

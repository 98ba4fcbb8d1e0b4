#include "kernels/engine/core/submission.h"

#include <cstring>
#include <memory>
#include <utility>

#include "kernels/engine/core/resolve.h"

namespace tf_smddp {
namespace {

Manifest ManifestOf(const Request& request) {
  return MakeManifest(request.operation, request.pairing.param_index, request.pairing.num_params,
                      request.shape, request.label, request.meaning);
}

}  // namespace

Submission::Submission(MemberState* state, Failures* failures, Delivery* delivery)
    : state_(state),
      failures_(failures),
      delivery_(delivery),
      order_(&state->group->segment().launch_log(), &state->group->segment().ready_log(),
             static_cast<std::uint64_t>(state->communicator->config().bucket_cap_bytes)) {}

void Submission::Refuse(const Status& reason) {
  state_->pending.Refuse(reason);
  state_->sequencer.Close();
}

std::uint64_t Submission::Submit(Request&& request) {
  const Manifest manifest = ManifestOf(request);
  Sequencer::Position position;
  bool tell = false;
  Status status = state_->sequencer.Enter(request, &position, &tell);
  if (!status.ok()) {
    if (tell) failures_->FailStep(request.step, "on " + state_->RankName() + ", " + status.message());
    delivery_->CountFailed(request, Clock::now(), Cost());
    request.done({status.code(), DescribeManifest(manifest) + " failed: " + status.message()});
    return 0;
  }
  if (state_->communicator->config().check_gradients) {
    gradient_check_.Look(request, manifest, position.ticket, state_->communicator->job().logger());
  }
  // A GPU computes without this host's cores, and in eager mode nothing computes meanwhile. On one host, no
  // thread naps and looks for messages.
  const bool computes = state_->communicator->wired() && request.input.on_host() && !request.seals_at_once &&
                        request.step != kNoStep;
  group_open_.store(position.group == Sequencer::GroupState::kOpen, std::memory_order_relaxed);
  last_group_.store(computes ? position.group : Sequencer::GroupState::kNoGroup, std::memory_order_relaxed);
  state_->stalls->Submitted(manifest, state_->communicator->id(), request.timeout);
  const auto pending = std::make_shared<PendingRequest>();
  const std::uint64_t id = next_id_.fetch_add(1);
  pending->id = id;
  pending->request = std::move(request);
  pending->manifest = manifest;
  pending->ticket = position.ticket;
  pending->incarnation = position.incarnation;
  pending->open = position.open;
  pending->bytes = InputBytes(pending->request);
  pending->submitted = Clock::now();
  PendingTable::Added added = PendingTable::Added::kClosed;
  const std::string key = Sequencer::KeyOf(pending->request.pairing, state_->communicator->wired());
  status = state_->group->table().FindSlot(key, &pending->slot);
  if (status.ok()) {
    pending->generation = state_->group->table().PlaceOf(pending->slot, pending->ticket).generation;
    status = PlaceData(pending.get());
  }
  if (status.ok()) {
    added = state_->pending.Add(pending, pending->open && pending->placed());
    if (added == PendingTable::Added::kEntered && !Enter(pending.get())) {
      added = PendingTable::Added::kDeferred;
    }
  }
  state_->sequencer.Exit(position.incarnation);
  if (added == PendingTable::Added::kEntered) {
    // The next request of its key may have waited for this one (Note [Places between hosts] in pending.h).
    if (state_->communicator->wired() && state_->pending.has_deferred()) state_->group->RingSelf();
    return id;
  }
  if (added == PendingTable::Added::kDeferred) {
    state_->counters->Deferred();
    state_->group->RingSelf();  // the progress thread tries again
    return id;
  }
  if (!status.ok()) {
    // The other ranks run it, and would wait for this one.
    const std::string text = state_->RankName() + ": " + status.message();
    if (status.code() == StatusCode::kDeviceLost) {
      state_->communicator->job().Abort(text);
    } else {
      failures_->Fail(pending->incarnation, pending->request.step, text);
    }
  } else if (added == PendingTable::Added::kTwin) {
    status = InvalidArgument(DescribeManifest(pending->manifest) +
                             " was submitted twice in one execution of its group; give each tensor its own "
                             "param_index below num_params");
    // The other ranks may have taken theirs, and would wait for a second one from here.
    failures_->Fail(pending->incarnation, pending->request.step,
                    "on " + state_->RankName() + ", " + status.message());
  } else {
    status = state_->pending.refusal();
  }
  delivery_->FreeSpans(pending.get());
  state_->stalls->Ended(1);
  delivery_->CountFailed(pending->request, pending->submitted, pending->cost);
  pending->request.done(status);
  return 0;
}

// Fills the cell: where the tensor lies in shared memory. A small tensor in private memory is copied into a
// span of the arena, so that the other ranks can reach it; when the arena is full it is staged like a large
// one. A tensor that may be reduced on its GPU stays there.
Status Submission::PlaceData(PendingRequest* pending) {
  const Request& request = pending->request;
  Arena& arena = state_->communicator->job().arena();
  pending->cell = {0, 0, request.shape.empty() ? 1 : static_cast<std::uint64_t>(request.shape[0]),
                   kNotInArena};
  if (!request.splits.empty()) {
    pending->splits_bytes = request.splits.size() * sizeof(std::uint64_t);
    pending->splits = arena.Allocate(pending->splits_bytes);
    if (pending->splits == nullptr) {
      return arena.FullError("the splits of " + DescribeManifest(pending->manifest));
    }
    auto* splits = static_cast<std::uint64_t*>(pending->splits);
    for (const std::int64_t rows : request.splits) *splits++ = static_cast<std::uint64_t>(rows);
    pending->cell.splits_offset = arena.OffsetOf(pending->splits, pending->splits_bytes);
  }
  state_->gpus.Tell(request);
  if (KeepsOnDevice(request)) {
    pending->cell.input_offset = pending->cell.output_offset = kOnDevice;
    return {};
  }
  if (pending->bytes == 0) return {};
  const bool all_outputs = FindCollective(request.operation.kind).reach() == Collective::Reach::kAllOutputs;
  if (!request.input.on_host() || (all_outputs && !request.output.on_host())) return Bounce(pending);
  pending->cell.input_offset = arena.OffsetOf(request.input.data, pending->bytes);
  pending->cell.output_offset = all_outputs ? arena.OffsetOf(request.output.data, pending->bytes) : 0;
  const bool in_arena =
      pending->cell.input_offset != kNotInArena && pending->cell.output_offset != kNotInArena;
  // Between hosts nothing is staged: the other ranks of this host must be able to reach each tensor.
  const bool wired = state_->communicator->wired();
  const bool small = pending->bytes <= static_cast<std::uint64_t>(state_->communicator->config().small_bytes);
  if (in_arena || (!small && !wired)) return {};
  void* span = arena.Allocate(pending->bytes);
  if (span == nullptr) {
    return wired ? arena.FullError(DescribeManifest(pending->manifest)) : Status();
  }
  std::memcpy(span, request.input.data, pending->bytes);
  pending->span = span;
  pending->cell.input_offset = pending->cell.output_offset = arena.OffsetOf(span, pending->bytes);
  return {};
}

bool Submission::KeepsOnDevice(const Request& request) {
  Communicator* const communicator = state_->communicator;
  const MemoryKind* const device = DeviceOf(request);
  // A lone member has nothing to exchange, and its keeper would take time to begin.
  if (device == nullptr || communicator->keeper() == nullptr || communicator->size() == 1) return false;
  CommunicatorSegment& segment = state_->group->segment();
  const MemberMask active(segment.active().load(std::memory_order_seq_cst));
  if (active.Without(segment.outside()) != MemberMask::FirstN(state_->group->size())) return false;
  if (communicator->wired() && segment.outside_left().load(std::memory_order_seq_cst) != 0) return false;
  const std::uint64_t elsewhere = segment.cannot_keep().load(std::memory_order_seq_cst);
  return communicator->keeper()->Keeps(request.operation, *device, RankId(static_cast<int>(elsewhere) - 1));
}

// Fills the cell for a buffer that the CPU may not touch, of any size. The copy may take its time.
Status Submission::Bounce(PendingRequest* pending) {
  const Request& request = pending->request;
  Job& job = state_->communicator->job();
  MemoryKind* const kind = request.input.on_host() ? request.output.kind : request.input.kind;
  Status status = BounceBuffer::Allocate(job.bounce_pool(), kind, pending->bytes, pending->manifest,
                                         &pending->input_bounce);
  if (!status.ok()) return status;
  pending->span = pending->input_bounce->span();
  pending->cell.input_offset = pending->cell.output_offset =
      job.arena().OffsetOf(pending->span, pending->bytes);
  if (FindCollective(request.operation.kind).reach() == Collective::Reach::kAllOutputs) {
    pending->output_bounce = pending->input_bounce;
  }
  pending->input_bounce->Fill(request.input, [handle = state_->communicator->handle()] {
    handle->Call([](Communicator* communicator) { communicator->group().RingSelf(); });
  });
  return {};
}

// `pending` is in the pending table. From Arrive on, another thread may complete it: only what Submit wrote
// is read of it. False when its place serves another ticket: then the request is deferred.
bool Submission::Enter(PendingRequest* pending) {
  // The progress thread delivers the error. A request that is done in part must not be done again.
  if (state_->communicator->job().aborted()) return true;
  if (pending->input_bounce != nullptr && !pending->input_bounce->fill_status().ok()) {
    failures_->FailRequest(*pending, FillError(*pending));
    return true;
  }
  const Place place = pending->place();
  Manifest others;
  int other_member = -1;
  switch (state_->group->table().Arrive(pending->slot, pending->ticket, state_->group->index(),
                                        pending->manifest, pending->cell, &others, &other_member)) {
    case Arrival::kWaiting:
      if (state_->communicator->ShutDownMask() != 0)
        state_->group->RingSelf();  // the progress thread looks closer
      return true;
    case Arrival::kLast:
      pending->completed_host.store(true, std::memory_order_relaxed);
      Launch(*pending);
      return true;
    case Arrival::kHostLast:
      pending->completed_host.store(true, std::memory_order_relaxed);
      order_.ReportHostReady(place);
      if (pending->request.caller_progresses && state_->group->is_relay()) {
        owed_ring_.store(true, std::memory_order_seq_cst);
      } else {
        state_->group->relay_bell().Ring();
      }
      return true;
    case Arrival::kBusy:
      state_->pending.Defer(place);
      return false;
    case Arrival::kMismatch:
      failures_->FailOnMismatch(*pending, others, other_member);
      return true;
    case Arrival::kTwice:
      failures_->Fail(pending->incarnation, pending->request.step,
                      state_->RankName() + " ran " + DescribeManifest(pending->manifest) +
                          " a second time while other ranks had not run it once; all ranks must run the same "
                          "collectives");
      return true;
    case Arrival::kAborted:
      return true;  // the progress thread delivers the error
  }
  __builtin_unreachable();
}

// When an append is refused, the incarnation has failed, and the progress thread delivers the error.
void Submission::Launch(const PendingRequest& pending) {
  const Place place = pending.place();
  ResolvedRequest resolved;
  const Status status = Resolve(state_->communicator, pending, &resolved);
  if (!status.ok()) return failures_->FailRequest(pending, status);
  if (pending.bytes <= static_cast<std::uint64_t>(state_->communicator->config().small_bytes) &&
      resolved.reachable && resolved.all_outputs()) {
    const Clock::time_point begin = Clock::now();
    resolved.collective->Direct(resolved.call, resolved.self, resolved.inputs.data(), resolved.outputs.data(),
                                0, resolved.call.count());
    state_->counters->Moved(pending.request.operation.kind, Clock::now() - begin);
    order_.AnnounceDone(place);
  } else {
    order_.Launch(place, pending.bytes, pending.request.seals_at_once);
  }
  state_->group->RingOthers();
  if (!pending.request.caller_progresses) return state_->group->RingSelf();
  owed_ring_.store(true, std::memory_order_seq_cst);
}

void Submission::LaunchInTurn(Place place, bool seals) {
  order_.LaunchInTurn(place, seals);
  state_->group->RingAll();
}

void Submission::AnnounceInTurn(Place place) {
  order_.AnnounceDone(place);
  state_->group->RingAll();
}

void Submission::LaunchForOthers(const std::vector<Place>& places) {
  for (const Place place : places) order_.Launch(place, 0, /*alone=*/false);
  state_->group->RingAll();
}

bool Submission::RetryDeferred() {
  MemberRecord& self = state_->group->self();
  if (!state_->pending.has_deferred()) {
    if (self.deferring.load(std::memory_order_relaxed) != 0)
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
  state_->pending.ForEach([&left](const PendingRequest&, bool is_entered) { left += is_entered ? 0 : 1; });
  for (; left > 0; --left) {
    const PendingTable::Shared pending = state_->pending.EnterDeferred(&cursor);
    if (pending == nullptr) break;
    if (Enter(pending.get())) entered = true;  // else it was busy still
  }
  return entered;
}

// Bits of the members that `pending` waits for.
std::uint64_t Submission::Missing(const PendingRequest& pending, bool entered) {
  CommunicatorSegment& segment = state_->group->segment();
  const std::uint64_t active = segment.active().load(std::memory_order_seq_cst);
  std::uint64_t missing;
  if (!segment.failure().Begun(pending.incarnation)) {
    missing = active & ~segment.failure().DrainedMask();
  } else if (!entered) {
    missing = segment.table().HeldUpBy(pending.place());
  } else if (const std::uint64_t participants = segment.table().Participants(pending.slot, pending.ticket)) {
    missing = participants;  // its batch does not end, and any of them may be why
  } else {
    missing = active & ~segment.table().ArrivedMask(pending.slot, pending.ticket);
  }
  return missing & ~(std::uint64_t{1} << state_->group->index());
}

void Submission::CollectWaiting(Clock::time_point before, std::vector<WaitingRequest>* waiting) {
  state_->pending.ForEach([&](const PendingRequest& pending, bool entered) {
    if (pending.submitted > before) return;
    const std::uint64_t missing = Missing(pending, entered);
    const bool on_device = missing == 0 && !entered && !pending.placed();
    WaitingRequest each;
    each.missing =
        state_->communicator->ToRanks(on_device ? std::uint64_t{1} << state_->group->index() : missing);
    if (each.missing.empty()) return;
    each.members = state_->communicator->ToRanks(~std::uint64_t{0});
    each.submitted = pending.submitted;
    each.timeout = pending.request.timeout;
    each.request = {pending.manifest, state_->communicator->id(), entered && state_->IsReady(pending),
                    on_device ? pending.request.input.kind->name() : ""};
    waiting->push_back(each);
  });
}

}  // namespace tf_smddp

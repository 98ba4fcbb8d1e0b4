#include "kernels/engine/core/delivery.h"

#include <cstring>
#include <iterator>
#include <utility>

#include "kernels/collectives/collective.h"
#include "kernels/common/rank_set.h"

namespace tf_smddp {
namespace {

// Callbacks that a caller who drives the progress calls itself. Longer lists go to the completion thread, so
// that what follows the first callbacks starts beside the others.
constexpr std::size_t kMostHeld = 4;

}  // namespace

struct Delivery::Ended {
  Completions completions;
  std::vector<DoneCallback> trivial;
  std::uint64_t count = 0;  // of those that have ended on their devices, too
  bool retired = false;     // a generation, which a deferred request may wait for
};

void Delivery::Complete(const std::vector<PendingTable::Shared>& done, bool small, Completions* held) {
  const Clock::time_point now = Clock::now();
  Ended ended;
  for (const PendingTable::Shared& pending : done) Finish(pending, now, small, &ended);
  state_->stalls->Ended(ended.count);
  if (held != nullptr && held->size() + ended.completions.size() <= kMostHeld) {
    std::move(ended.completions.begin(), ended.completions.end(), std::back_inserter(*held));
  } else {
    state_->completions->Push(std::move(ended.completions));
  }
  if (ended.retired) RingDeferring();
  for (const DoneCallback& callback : ended.trivial) callback(Status());
}

// Brings the result from the arena to the output, if it is not there. When a device does not take its rank's
// result, the other ranks have theirs, so the job ends.
Status Delivery::PutResult(const PendingRequest& pending) {
  const Request& request = pending.request;
  if (pending.output_bounce == nullptr) {
    if (pending.span != nullptr &&
        FindCollective(request.operation.kind).reach() == Collective::Reach::kAllOutputs) {
      std::memcpy(request.output.data, pending.span, pending.bytes);
    }
    return {};
  }
  const auto check = [handle = state_->communicator->handle(), rank = state_->RankName(),
                      manifest = pending.manifest, kind = request.output.kind](const Status& status) {
    if (status.ok()) return Status();
    const std::string text = rank + " could not copy the result of " + DescribeManifest(manifest) + " to " +
                             kind->name() + ": " + status.message();
    handle->Call([&](Communicator* communicator) { communicator->job().Abort(text); });
    return Internal(text);
  };
  return check(pending.output_bounce->Drain(request.output, check));
}

void Delivery::Finish(const PendingTable::Shared& pending, Clock::time_point now, bool small, Ended* ended) {
  LocalGroup* const group = state_->group;
  const Request& request = pending->request;
  state_->gpus.Look(request, pending->manifest);
  const Status status = PutResult(*pending);
  if (HasEnded(*pending)) ++ended->count;
  FreeSpans(pending.get());
  const bool arrived_last = ArrivedLast(*pending);
  ended->retired |= group->table().Acknowledge(pending->place(), group->index());
  if (request.pairing.kind == Pairing::kName) {
    state_->sequencer.NameEnded(request.pairing.name, pending->incarnation);
  }
  Cost& cost = pending->cost;
  cost.small = small;
  cost.in_place = pending->bytes > 0 && request.output.data == request.input.data;
  if (cost.waiting == Clock::duration::zero()) cost.waiting = now - pending->submitted;  // it was in no batch
  std::uint64_t step = 0;  // that has ended with it
  if (status.ok()) {
    state_->counters->Completed(request.operation.kind, pending->bytes, cost);
    step = state_->counters->Blocked(request.pairing, pending->submitted, now, arrived_last);
  } else {
    state_->counters->Failed(request.operation.kind);
  }
  if (state_->timeline->running()) {
    state_->timeline->Add(request, pending->bytes, pending->submitted, cost, now, !status.ok());
    if (step > 0) state_->timeline->AddStep(request.communicator, step, now);
  }
  if (request.callback_is_trivial && status.ok()) {
    ended->trivial.push_back(std::move(pending->request.done));
  } else {
    ended->completions.emplace_back(std::move(pending->request.done), status);
  }
}

// False if a device has still to write its result; the stall watch counts it when that has been done.
bool Delivery::HasEnded(const PendingRequest& pending) {
  const Buffer& output = pending.request.output;
  const std::function<bool()> writing = output.on_host() ? nullptr : output.kind->Writing(output.stream);
  if (writing == nullptr || !writing()) return true;
  Communicator* const communicator = state_->communicator;
  WaitingRequest waiting;
  waiting.request = {pending.manifest, communicator->id(), /*ready=*/false, output.kind->name()};
  waiting.submitted = pending.submitted;
  waiting.timeout = pending.request.timeout;
  waiting.members = communicator->ToRanks(~std::uint64_t{0});
  // NCCL's calls wait for those of the other ranks; copies do not.
  const bool copied = pending.output_bounce != nullptr;
  waiting.missing = copied ? RankSet({communicator->job().rank()}) : waiting.members;
  state_->stalls->EndedButForWriting(std::move(waiting), writing);
  return false;
}

// Whether all other ranks had arrived when this one did. This rank has not acknowledged the request yet.
bool Delivery::ArrivedLast(const PendingRequest& pending) const {
  if (!pending.completed_host.load(std::memory_order_relaxed)) return false;
  if (!state_->communicator->wired()) return true;
  const int outside = state_->group->segment().outside().value();
  return state_->group->table().CellOf(pending.place(), outside).output_offset == kThisHostLast;
}

void Delivery::RingDeferring() {
  LocalGroup* const group = state_->group;
  for (int member = 0; member < group->size(); ++member) {
    if (group->segment().member(member).deferring.load(std::memory_order_seq_cst) != 0) {
      group->bell(member).Ring();
    }
  }
  if (group->segment().relay_waits().load(std::memory_order_seq_cst) != 0) group->relay_bell().Ring();
}

void Delivery::FailIncarnation(std::uint64_t incarnation, std::uint64_t origin, const std::string& text,
                               bool left) {
  const std::vector<PendingTable::Shared> requests = state_->pending.TakeIncarnation(incarnation);
  for (const PendingTable::Shared& pending : requests) {
    state_->memory->RememberStep(pending->request.step, origin, ErrorText(*pending, text));
    FreeSpans(pending.get());
  }
  if (!left) state_->counters->IncarnationFailed();
  state_->sequencer.Settle(left || !requests.empty());
  Fail(requests, text);
}

// Peers may still touch the spans, so these are not given back.
void Delivery::FailAll(const std::string& text, bool but_under_way) {
  state_->sequencer.Close();
  Fail(state_->pending.Close(Internal(text), but_under_way), text);
}

void Delivery::FailLate() {
  const std::vector<PendingTable::Shared> requests =
      state_->pending.Close(Internal("the process set was removed"));
  for (const PendingTable::Shared& pending : requests) FreeSpans(pending.get());
  Fail(requests, "the process set was removed meanwhile");
}

void Delivery::Fail(const std::vector<PendingTable::Shared>& requests, const std::string& text) {
  Completions completions;
  std::uint64_t ended = 0;
  for (const PendingTable::Shared& pending : requests) {
    if (HasEnded(*pending)) ++ended;
    CountFailed(pending->request, pending->submitted, pending->cost);
    completions.emplace_back(std::move(pending->request.done), Internal(ErrorText(*pending, text)));
  }
  state_->stalls->Ended(ended);
  state_->completions->Push(std::move(completions));
}

std::string Delivery::ErrorText(const PendingRequest& pending, const std::string& text) {
  return DescribeManifest(pending.manifest) + " failed: " + text;
}

void Delivery::CountFailed(const Request& request, Clock::time_point submitted, const Cost& cost) {
  state_->counters->Failed(request.operation.kind);
  if (!state_->timeline->running()) return;
  state_->timeline->Add(request, InputBytes(request), submitted, cost, Clock::now(), /*failed=*/true);
}

void Delivery::FreeSpans(PendingRequest* pending) {
  Arena& arena = state_->communicator->job().arena();
  if (pending->span != nullptr && pending->input_bounce == nullptr) arena.Free(pending->span);
  if (pending->splits != nullptr) arena.Free(pending->splits);
  pending->input_bounce.reset();
  pending->output_bounce.reset();
}

}  // namespace tf_smddp

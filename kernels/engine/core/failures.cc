#include "kernels/engine/core/failures.h"

#include <vector>

#include "kernels/control/host_order.h"
#include "kernels/control/ticket.h"

namespace tf_smddp {

void Failures::Fail(std::uint64_t incarnation, StepId step, const std::string& text) {
  // A rank that has left no longer concerns the others.
  if ((state_->group->segment().active().load() >> state_->group->index() & 1) == 0) return;
  const FailureRecord& record = state_->group->segment().failure();
  std::uint64_t origin = state_->memory->OriginOf(step);
  // When the failure of this step has ended an earlier incarnation here, what the step left in this
  // incarnation is another failure.
  if (record.Knows(origin) && !record.IsBroken(incarnation)) origin = state_->memory->NewOrigin();
  state_->memory->RememberStep(step, origin, text);
  state_->memory->Delivered(origin);
  state_->sequencer.Excuse(incarnation,
                           origin);  // first: the progress thread may deal with the failure at once
  // Between the failure of one incarnation and the start of the next on all ranks, the next cannot fail yet.
  if (state_->communicator->Fail(incarnation, origin, text)) return;
  if (state_->sequencer.Postpone(incarnation, origin, text)) {
    state_->group->RingSelf();  // the progress thread sees to it that the incarnation can begin
  } else {
    state_->communicator->Fail(incarnation, origin, text);
  }
}

void Failures::FailRequest(const PendingRequest& pending, const Status& status) {
  if (status.code() == StatusCode::kCorrupt) {
    state_->communicator->job().Abort(status.message());
    return;
  }
  const std::string text = state_->RankName() + ": " + status.message();
  if (status.code() == StatusCode::kDeviceLost) {
    state_->communicator->job().Abort(text);
  } else {
    Fail(pending.incarnation, pending.request.step, text);
  }
}

void Failures::FailOnMismatch(const PendingRequest& pending, const Manifest& others, int other_member) {
  const int other_rank =
      other_member >= 0 && other_member < state_->group->size() ? state_->group->rank_of(other_member) : -1;
  Fail(pending.incarnation, pending.request.step,
       DescribeDisagreement(Sequencer::KeyOf(pending.request.pairing, state_->communicator->wired()),
                            pending.ticket, state_->communicator->job().rank(), pending.manifest, other_rank,
                            others));
}

void Failures::Cancel(std::uint64_t id, const std::string& reason) {
  std::string text;
  std::uint64_t incarnation = 0;
  StepId step = kNoStep;
  state_->pending.ForEach([&](const PendingRequest& pending, bool entered) {
    if (pending.id != id || (entered && state_->IsReady(pending))) return;
    text = state_->RankName() + " withdrew " + DescribeManifest(pending.manifest) + ": " + reason;
    incarnation = pending.incarnation;
    step = pending.request.step;
  });
  if (!text.empty()) Fail(incarnation, step, text);
}

void Failures::CancelAll(const std::string& reason) {
  std::vector<std::uint64_t> ids;
  state_->pending.ForEach([&](const PendingRequest& pending, bool) { ids.push_back(pending.id); });
  for (const std::uint64_t id : ids) Cancel(id, reason);
}

void Failures::EndGroup(std::uint64_t ticket, bool failed, const std::string& reason) {
  StepId step = kNoStep;
  if (!state_->sequencer.EndGroup(ticket, failed, &step)) return;
  Fail(IncarnationOf(ticket), step,
       state_->RankName() + " ended a step before all tensors of its group had been submitted: " + reason);
}

void Failures::FailStep(StepId step, const std::string& reason) {
  std::uint64_t incarnation;
  if (state_->sequencer.StartFailing(step, &incarnation)) Fail(incarnation, step, reason);
}

void Failures::FailGroup(std::uint64_t ticket, const std::string& reason) {
  if (state_->sequencer.StartFailingGroup(ticket)) Fail(IncarnationOf(ticket), kNoStep, reason);
}

void Failures::OpenIncarnation() {
  std::uint64_t origin;
  std::string text;
  if (state_->sequencer.Open(&origin, &text))
    state_->communicator->Fail(state_->sequencer.incarnation(), origin, text);
}

// "rank 1 called shutdown() after 14 steps (28 collectives)". For ranks of other hosts there is less.
std::string Failures::HowTheyLeft(std::uint64_t members) const {
  const std::string names = state_->communicator->Names(members);
  const int first = __builtin_ctzll(members);
  if ((members & (members - 1)) != 0 || first >= state_->group->size()) return names + " left the job";
  const RankRecord& record = state_->group->record(first);
  const bool ended = record.left.load(std::memory_order_seq_cst) == RankRecord::kScriptEnded;
  const std::string how =
      ended ? " has ended (its script is at its end, or called sys.exit)" : " called shutdown()";
  const std::string collectives = std::to_string(record.progress.submitted()) + " collectives";
  const std::uint64_t steps = record.steps.load(std::memory_order_relaxed);
  if (steps == 0) return names + how + " after " + collectives;
  return names + how + " after " + std::to_string(steps) + (steps == 1 ? " step (" : " steps (") +
         collectives + ")";
}

void Failures::CheckLeft() {
  CheckLeft(state_->communicator->ShutDownMask(), /*undrained=*/0, /*awaits_incarnation=*/false);
}

void Failures::CheckLeftBetweenIncarnations(std::uint64_t next, bool awaits_incarnation) {
  const FailureRecord& record = state_->group->segment().failure();
  const MemberMask drained(record.DrainedMask());
  const std::uint64_t shut_down = state_->communicator->ShutDownMask();
  // Since the caller looked, `next` may have begun, and a rank may have ended its work in it.
  if (record.Begun(next)) return;
  CheckLeft(shut_down, (MemberMask::FirstN(state_->group->size()) - drained).bits(), awaits_incarnation);
}

void Failures::CheckLeft(std::uint64_t shut_down, std::uint64_t undrained, bool awaits_incarnation) {
  const std::uint64_t active = state_->group->segment().active().load(std::memory_order_seq_cst);
  const std::uint64_t waited_for = shut_down & (active | undrained);
  if (waited_for == 0) return;
  const FailureRecord& record = state_->group->segment().failure();
  std::string text;
  state_->pending.ForEach([&](const PendingRequest& pending, bool entered) {
    if (record.IsBroken(pending.incarnation))
      return;  // before it left: the progress thread is about to deliver that
    const std::uint64_t arrived =
        entered ? state_->group->table().ArrivedMask(pending.slot, pending.ticket) : 0;
    const std::uint64_t missing = waited_for & ~arrived;
    if (missing == 0 || !text.empty() || (entered && state_->IsReady(pending))) return;
    if (entered && (arrived >> state_->group->index() & 1) == 0)
      return;  // about to arrive, and to look itself
    text = HowTheyLeft(missing) + ", but " + DescribeManifest(pending.manifest) + " on " +
           state_->RankName() +
           " still waits for it. Likely causes: it had fewer batches (give all ranks the same number, with "
           "drop_remainder=True or repeat(), or put join() around the loop); it left the loop early; or it "
           "does not use the result of this collective, so that TensorFlow does not run it there";
  });
  const std::uint64_t needed = shut_down & undrained;
  if (text.empty() && needed != 0 && (awaits_incarnation || state_->sequencer.has_postponed())) {
    text = HowTheyLeft(needed) + " while a failed step was being ended on " + state_->RankName() +
           ". Likely cause: not all ranks ran the same number of steps";
  }
  if (!text.empty()) state_->communicator->job().Abort(text);
}

void Failures::CheckAllCanLeave(std::uint64_t incarnation) {
  const std::uint64_t active = state_->group->segment().active().load(std::memory_order_seq_cst);
  const std::uint64_t waited_for = state_->communicator->ShutDownMask() & active;
  // Since the caller looked, all may have left, and a rank of another host may have ended its work.
  if (waited_for == 0 || state_->group->segment().failure().Failed(incarnation)) return;
  state_->communicator->job().Abort(HowTheyLeft(waited_for) + ", but join() on " + state_->RankName() +
                                    " still waits for it. All ranks must come to the end of their join(); "
                                    "none may leave the loop without it");
}

}  // namespace tf_smddp

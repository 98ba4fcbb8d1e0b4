#include "kernels/engine/core/progress.h"

#include <sched.h>

#include <chrono>
#include <string>
#include <thread>
#include <utility>

namespace tf_smddp {
namespace {

// Waits for something that another thread does within a few instructions. That thread may be descheduled.
void Pause(int tries) {
  if (tries < 16) {
    ::sched_yield();
  } else {
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
}

}  // namespace

Progress::Progress(MemberState* state, Submission* submission, Failures* failures, Delivery* delivery)
    : state_(state),
      communicator_(state->communicator),
      group_(state->group),
      submission_(submission),
      failures_(failures),
      delivery_(delivery),
      reader_(communicator_),
      runner_(state, failures) {
  if (communicator_->wired() && group_->is_relay()) relay_ = std::make_unique<Relay>(state, submission);
}

Progress::~Progress() {
  ended_ = ended_ || communicator_->job().aborted();
  EndDevices();
  if (!open_) communicator_->job().arena().Release();  // since EndIncarnation
}

bool Progress::Step(Completions* held) {
  submission_->TakeOwedRing();  // before looking at the log
  if (communicator_->job().aborted()) {
    const bool now = !ended_;
    if (now) EndJob();
    return now;
  }
  // The relay works for the other members of this host even when this rank has left.
  const bool relayed = relay_ != nullptr && relay_->Step();
  const Absence& absence = state_->absence;
  if (relayed) last_work_ = "with other hosts";
  if (!open_) {
    if (group_->segment().failure().Begun(incarnation_)) {
      last_work_ = "the begin of an incarnation";
      BeginIncarnation();
      return true;
    }
    // A rank that has shut down would not let it begin.
    failures_->CheckLeftBetweenIncarnations(
        incarnation_, /*awaits_incarnation=*/absence.asked() || absence.return_awaited());
    return relayed;
  }
  if (group_->segment().failure().Failed(incarnation_)) {
    last_work_ = "the end of an incarnation";
    EndIncarnation();
    return true;
  }
  if (absence.left()) {
    if (absence.return_awaited()) failures_->CheckAllCanLeave(incarnation_);
    return relayed || (relay_ != nullptr && relay_->SealOpen());
  }
  bool moved = relayed;
  const auto note = [&](bool worked, const char* work) {
    moved |= worked;
    if (worked) last_work_ = work;
  };
  note(ReadLog(held), "entries of the launch log");
  note(RunBatch(held), "a batch");
  note(submission_->RetryDeferred(), "a deferred request");
  failures_->CheckLeft();
  if (moved) return true;
  runner_.Watch();
  if (absence.asked()) {
    last_work_ = "to leave";
    LeaveNow();
    return true;
  }
  if (runner_.running()) return false;
  if (runner_.busy() && MoreMayCome()) return false;  // Note [A batch that fills]
  // This rank is out of sealed work, so the open batch goes now.
  if (communicator_->wired()) {
    note(relay_ != nullptr && relay_->SealOpen(), "with other hosts");
    return moved;
  }
  note(submission_->SealOpen(), "an open batch");
  if (moved) group_->RingOthers();
  return moved;
}

// Whether requests may come to the open batch: this rank submits the rest of a group, or has submitted some
// that wait for other ranks.
bool Progress::MoreMayCome() {
  const std::size_t open = reader_.num_open() + (relay_ != nullptr ? relay_->num_held() : 0);
  return submission_->group_open() || state_->pending.size() > open;
}

bool Progress::ReadLog(Completions* held) {
  LogReader::Batch places;
  const bool moved = reader_.Read(&places);
  BatchRunner::Requests done;
  TakeDone(places, &done);
  if (!done.empty()) delivery_->Complete(done, /*small=*/true, held);
  return moved;
}

// Takes the requests whose results the last rank to arrive has put in place.
void Progress::TakeDone(const LogReader::Batch& places, BatchRunner::Requests* done) {
  for (const Place place : places) {
    PendingTable::Shared pending = state_->pending.Find(place);
    if (pending == nullptr || !state_->IsReady(*pending)) {
      return communicator_->job().Abort(
          "shared memory is corrupt: the launch log names a request as done that rank " +
          std::to_string(communicator_->job().rank()) + " has not submitted, or that is not ready");
    }
    // An abort may take it at this moment.
    if (state_->pending.Take(place) != nullptr) done->push_back(std::move(pending));
  }
}

bool Progress::RunBatch(Completions* held) {
  if (!runner_.running()) {
    LogReader::Batch batch = reader_.TakeBatch();
    if (batch.empty()) return false;
    runner_.Start(std::move(batch));
    if (!runner_.running()) return true;  // it cannot be run
  }
  BatchRunner::Requests done;
  const bool moved = runner_.Step(&done);
  if (!done.empty()) delivery_->Complete(done, /*small=*/false, held);
  return moved;
}

// The incarnation has failed, or all members have left. This rank lets go of everything that belongs to it:
// what had completed on all ranks is delivered as such, everything else gets the error.
void Progress::EndIncarnation() {
  FailureRecord& failure = group_->segment().failure();
  for (int tries = 0; failure.StateOf(incarnation_) != FailureRecord::State::kFailed; ++tries) {
    if (failure.StateOf(incarnation_) == FailureRecord::State::kDamaged) {
      communicator_->job().Abort("shared memory is corrupt: the failure record of a process set");
    }
    if (communicator_->job().aborted()) return;  // its writer may be dead
    Pause(tries);
  }
  const std::string text = failure.Text();
  const std::uint64_t origin = failure.Origin();
  last_to_leave_ = failure.LastToLeave();
  state_->sequencer.Advance(origin, text);
  for (int tries = 0; !state_->sequencer.AllOut(incarnation_); ++tries) {
    if (communicator_->job().aborted()) return;
    Pause(tries);
  }
  communicator_->job().arena().Quarantine();
  SettleLog();
  runner_.Abandon(/*job_end=*/nullptr);
  delivery_->FailIncarnation(incarnation_, origin, text, state_->absence.left());
  const std::uint64_t failed = incarnation_++;
  communicator_->LogDebug("incarnation " + std::to_string(failed) + " has ended here: " + text);
  open_ = false;
  failure.Drained(group_->index());
  Restart(failed);
}

// After this rank has drained: starts the next incarnation if it was the last one to.
void Progress::Restart(std::uint64_t incarnation) {
  CommunicatorSegment& segment = group_->segment();
  if (!segment.failure().TryRestart(incarnation, MemberMask::FirstN(group_->size()))) return;
  if (segment.failure().LastToLeave().valid()) segment.ReturnAll();
  segment.table().Clear();
  communicator_->job().segment().turn_record(group_->region()).Renew();
  const MemberMask active(segment.active().load(std::memory_order_seq_cst));
  runner_.Renew(active & MemberMask::FirstN(group_->size()));
  segment.launch_log().Reopen();
  segment.failure().Restart(incarnation);
  group_->RingAll();
}

void Progress::BeginIncarnation() {
  runner_.Reset();
  communicator_->job().arena().Release();
  open_ = true;
  communicator_->LogDebug("incarnation " + std::to_string(incarnation_) + " begins");
  failures_->OpenIncarnation();
  if (last_to_leave_.valid()) {
    state_->pending.Admit();
    state_->absence.Return(std::exchange(last_to_leave_, RankId()));
  } else if (state_->absence.left()) {
    ReturnIfAllHaveLeft();  // of which the failure of a step may have come first
  }
}

// The log is closed first, so that every rank draws the same line (Note [One end]).
void Progress::SettleLog() {
  group_->segment().launch_log().Close();
  if (state_->absence.left()) return reader_.SkipRest();
  LogReader::Batch places;
  reader_.ReadRest(&places);
  BatchRunner::Requests small, batched;
  for (const Place place : places) {
    if (PendingTable::Shared pending = state_->pending.Take(place)) small.push_back(std::move(pending));
  }
  runner_.End(&batched);
  for (LogReader::Batch batch = reader_.TakeBatch(); !batch.empty(); batch = reader_.TakeBatch()) {
    runner_.EndUnstarted(batch, &batched);
  }
  delivery_->Complete(small, /*small=*/true, nullptr);
  delivery_->Complete(batched, /*small=*/false, nullptr);
}

// Note [Leaving a communicator] in readiness_table.h.
void Progress::LeaveNow() {
  CommunicatorSegment& segment = group_->segment();
  const MemberMask self = MemberMask::Of(MemberId(group_->index()));
  // A thread of this rank that has launched a request may still be at it.
  for (int tries = 0; !state_->sequencer.AllOut(incarnation_); ++tries) {
    if (communicator_->job().aborted()) return;
    Pause(tries);
  }
  // Before it becomes inactive, since requests that become ready afterwards do not include it.
  runner_.Leave();
  if (MemberMask(segment.active().fetch_and(~self.bits(), std::memory_order_seq_cst)) == self) {
    segment.last_to_leave().store(communicator_->job().rank() + 1, std::memory_order_seq_cst);
  }
  if (communicator_->wired()) group_->relay_bell().Ring();
  submission_->LaunchForOthers(segment.table().MakeReadyAfterLeaving());
  state_->sequencer.ForgetOwed();
  state_->absence.Leave();
  ReturnIfAllHaveLeft();
}

// Between hosts, the head sees to it (kernels/control/host_order.h).
void Progress::ReturnIfAllHaveLeft() {
  CommunicatorSegment& segment = group_->segment();
  if (communicator_->wired() || segment.active().load(std::memory_order_seq_cst) != 0) return;
  const RankId last(segment.last_to_leave().load(std::memory_order_seq_cst) - 1);
  if (!last.valid()) return;  // it is about to say that it was, and then looks itself
  communicator_->FailHere(incarnation_, state_->memory->NewOrigin(), "all ranks have left", last);
}

// After an abort.
void Progress::EndJob() {
  communicator_->job().arena().Quarantine();
  if (open_) SettleLog();
  delivery_->FailAll(communicator_->job().AbortText());
  ended_ = true;
}

void Progress::EndDevices() {
  if (!ended_ || abandoned_) return;
  abandoned_ = true;
  const Status end = Internal(communicator_->job().AbortText());
  runner_.Abandon(&end);
}

}  // namespace tf_smddp

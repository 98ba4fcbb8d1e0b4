// Dispatcher: takes a request of one communicator to readiness, and from its end to its callback.
//
// Place in the stack: between Engine (any thread submits) and the comm thread (follows the logs). Submitting
// enters the request in the readiness table; the rank that arrives last launches it: a small request is
// reduced on the spot and appended to the small log, any other goes to the launch log by way of the
// fusion-buffer manager.
#ifndef TF_SMDDP_KERNELS_ENGINE_DISPATCHER_H_
#define TF_SMDDP_KERNELS_ENGINE_DISPATCHER_H_

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "kernels/engine/communicator.h"
#include "kernels/engine/completion_thread.h"
#include "kernels/engine/express.h"
#include "kernels/engine/failure_memory.h"
#include "kernels/engine/pending.h"
#include "kernels/engine/sequencer.h"
#include "kernels/engine/stall_watch.h"
#include "kernels/engine/statistics.h"
#include "kernels/engine/timeline.h"
#include "kernels/engine/work.h"
#include "kernels/fusion/fusion_buffer_manager.h"

namespace tf_smddp {

class Dispatcher {
 public:
  // All outlive it.
  Dispatcher(Communicator* communicator, CompletionThread* completions, FailureMemory* memory,
             StallWatch* stalls, CommunicatorCounters* counters, Timeline* timeline);
  // Ends what has come since the communicator was found unused, and is left. When the comm thread has ended.
  ~Dispatcher();

  // Ends waits in here, and refuses what is submitted from now on: the communicator is being removed. Any
  // thread.
  void Refuse(const Status& reason);

  // Takes a valid request. Its callback is called later with the outcome, or at once, in this thread, when
  // the engine does not take it, or it is done. Returns its id, or 0. Any thread.
  std::uint64_t Submit(Request&& request);

  // Withdraws request `id` with `reason`, which fails the epoch for all ranks, unless the request is ready or
  // done already: then nothing happens. Any thread.
  void Cancel(std::uint64_t id, const std::string& reason);

  // Fails the epoch if something is pending here that is not ready. Any thread.
  void CancelAll(const std::string& reason);

  // See Engine. Any thread.
  void EndGroup(std::uint64_t ticket, bool failed, const std::string& reason);
  void FailStep(StepId step, const std::string& reason);

  // Enters deferred requests whose place has become free. True when there was one. Comm thread.
  bool RetryDeferred();

  // Ends the job when a request here waits for a rank that has shut down (Note [Leaving] in dispatcher.cc),
  // or a caller for the next epoch (`awaits_epoch`). Comm thread.
  void CheckLeft(bool awaits_epoch);

  // Requests that have been taken from pending() have completed on all ranks, `small` ones or others:
  // delivers them, and gives their generations back. A few go to `held`, if that is not nullptr, for the
  // caller to call. Comm thread.
  void Complete(const std::vector<PendingTable::Shared>& done, bool small,
                std::vector<CompletionThread::Completion>* held);

  // Has `completions` called by the completion thread. Comm thread.
  void PassOn(std::vector<CompletionThread::Completion> completions) {
    completions_->Push(std::move(completions));
  }

  // Whether a caller that assists has launched something since the last look, of which the comm thread was
  // not told. Whoever looks at the logs next, or rings, takes it. Any thread.
  bool TakeOwedRing() {
    return owed_ring_.load(std::memory_order_seq_cst) &&
           owed_ring_.exchange(false, std::memory_order_seq_cst);
  }

  // What this rank is not in has become ready because this rank left: launches it. Comm thread.
  void LaunchForOthers(const std::vector<Place>& places);

  // `epoch` has failed: delivers the error to everything of it that is pending. Comm thread.
  void FailEpoch(std::uint64_t epoch, std::uint64_t origin, const std::string& text);

  // The current epoch has begun. Comm thread.
  void OpenEpoch();

  // The job was aborted: delivers the error to everything that is pending, and refuses what comes. Comm
  // thread.
  void FailAll(const std::string& text);

  // Handles an error of PrepareWork, or of making room for an output: damage ends the job, anything else the
  // epoch. Any thread.
  void FailWork(const PendingRequest& pending, const Status& status);

  // Appends this rank's requests that were submitted at `before` or earlier and still wait for other ranks.
  // Any thread.
  void CollectWaiting(Clock::time_point before, std::vector<StallWatch::Waiting>* waiting);

  // Whether a request of this rank, which has entered the table, has met its peers. Any thread.
  bool IsReady(const PendingRequest& pending) {
    return communicator_->table().Participants(pending.slot, pending.ticket) != 0;
  }

  PendingTable& pending() { return pending_; }
  CommunicatorCounters& counters() { return *counters_; }
  Sequencer& sequencer() { return sequencer_; }
  FusionBufferManager& fusion() { return fusion_; }

 private:
  bool RunExpress(const Request& request, const Manifest& manifest, const Sequencer::Position& position,
                  Clock::time_point* submitted);
  Status PlaceData(PendingRequest* pending);
  void FreeSpans(const PendingRequest& pending);
  bool Enter(const PendingRequest& pending, std::uint64_t* done_at);
  std::uint64_t Missing(const PendingRequest& pending, bool entered);
  void Launch(const PendingRequest& pending, std::uint64_t* done_at);
  struct Delivery;
  void Finish(const PendingTable::Shared& pending, Clock::time_point now, bool small, Delivery* delivery);
  void Deliver(Delivery delivery, std::vector<CompletionThread::Completion>* held = nullptr);
  void FinishAhead(const PendingRequest& pending, std::uint64_t position, Delivery* delivery);
  void Failed(const Request& request, Clock::time_point submitted, const Cost& cost);
  void RingDeferring();
  void FailOnMismatch(const PendingRequest& pending, const Manifest& others, int other_member);
  void Fail(std::uint64_t epoch, StepId step, const std::string& text);
  std::string RankName() const { return "rank " + std::to_string(communicator_->job().rank()); }

  Communicator* const communicator_;
  CompletionThread* const completions_;
  FusionBufferManager fusion_;
  FailureMemory* const memory_;
  StallWatch* const stalls_;
  CommunicatorCounters* const counters_;
  Timeline* const timeline_;
  PendingTable pending_;
  Sequencer sequencer_;
  Express express_;
  std::atomic<std::uint64_t> next_id_{1};
  std::atomic<bool> owed_ring_{false};
};

}  // namespace tf_smddp

#endif  // TF_SMDDP_KERNELS_ENGINE_DISPATCHER_H_

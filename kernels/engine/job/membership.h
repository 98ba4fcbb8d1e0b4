// Membership: everything that one rank runs for one communicator.
//
// Place in the stack: CommunicatorSet owns it; it owns the parts that work on MemberState.
#ifndef TF_SMDDP_KERNELS_ENGINE_JOB_MEMBERSHIP_H_
#define TF_SMDDP_KERNELS_ENGINE_JOB_MEMBERSHIP_H_

#include <memory>
#include <utility>

#include "kernels/engine/core/completion_thread.h"
#include "kernels/engine/core/delivery.h"
#include "kernels/engine/core/failure_memory.h"
#include "kernels/engine/core/failures.h"
#include "kernels/engine/core/member_state.h"
#include "kernels/engine/core/progress_thread.h"
#include "kernels/engine/core/submission.h"
#include "kernels/engine/job/communicator.h"
#include "kernels/engine/watch/stall_watch.h"
#include "kernels/engine/watch/statistics.h"
#include "kernels/engine/watch/timeline.h"

namespace tf_smddp {

class Membership {
 public:
  // Starts its progress thread. The others outlive it.
  Membership(std::unique_ptr<Communicator> communicator, CompletionThread* completions, FailureMemory* memory,
             StallWatch* stalls, std::shared_ptr<CommunicatorCounters> counters, Timeline* timeline)
      : communicator_(std::move(communicator)),
        counters_(std::move(counters)),
        state_(communicator_.get(), completions, memory, stalls, counters_.get(), timeline),
        failures_(&state_),
        delivery_(&state_),
        submission_(&state_, &failures_, &delivery_),
        progress_(std::make_unique<ProgressThread>(&state_, &submission_, &failures_, &delivery_)) {}

  // Ends the thread. Requests that were submitted after the communicator was found unused get an error.
  ~Membership() {
    progress_.reset();
    delivery_.FailLate();
  }
  Membership(const Membership&) = delete;
  Membership& operator=(const Membership&) = delete;

  // The job has ended, and the progress thread does not tell, since it blocks in a device's driver or the
  // network's library. All that waits here gets the error, but for the batch under way: the progress thread
  // may go on to use its memory. Any thread.
  void FailWaiting() {
    communicator_->job().arena().Quarantine();
    delivery_.FailAll(communicator_->job().AbortText(), /*but_under_way=*/true);
  }

  Communicator& communicator() { return *communicator_; }
  PendingTable& pending() { return state_.pending; }
  Sequencer& sequencer() { return state_.sequencer; }
  Absence& absence() { return state_.absence; }
  bool IsReady(const PendingRequest& request) const { return state_.IsReady(request); }
  Submission& submission() { return submission_; }
  Failures& failures() { return failures_; }
  ProgressThread& progress() { return *progress_; }

 private:
  const std::unique_ptr<Communicator> communicator_;
  const std::shared_ptr<CommunicatorCounters> counters_;
  MemberState state_;
  Failures failures_;
  Delivery delivery_;
  Submission submission_;
  std::unique_ptr<ProgressThread> progress_;
};

}  // namespace tf_smddp

#endif  // TF_SMDDP_KERNELS_ENGINE_JOB_MEMBERSHIP_H_

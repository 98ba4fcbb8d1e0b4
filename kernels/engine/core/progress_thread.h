// ProgressThread: the thread that drives the progress of one communicator, and callers that take its place.
//
// Place in the stack: above progress.h. The thread sleeps on the rank's doorbell when there is nothing to do.
// A caller that waits for its own requests drives the progress itself while that pays, so that no thread has
// to be woken. Whoever drives it holds `driving_`; docs and comments call that thread the progress thread.
#ifndef TF_SMDDP_KERNELS_ENGINE_CORE_PROGRESS_THREAD_H_
#define TF_SMDDP_KERNELS_ENGINE_CORE_PROGRESS_THREAD_H_

#include <atomic>
#include <chrono>
#include <functional>
#include <mutex>
#include <thread>

#include "kernels/engine/core/member_state.h"
#include "kernels/engine/core/progress.h"
#include "kernels/engine/core/spin_budget.h"
#include "kernels/engine/job/communicator.h"

namespace tf_smddp {

class ProgressThread {
 public:
  // Starts the thread. All outlive it.
  ProgressThread(MemberState* state, Submission* submission, Failures* failures, Delivery* delivery);
  // Stops it, wherever the job stands; nothing may be pending unless the job was aborted.
  ~ProgressThread();

  // Calls `submit`, then drives the progress in this thread until `ended`, or until waiting for the other
  // ranks no longer pays. Any thread but the engine's own.
  void SubmitAndProgress(Caller caller, const std::function<void()>& submit, const std::atomic<bool>& ended);

 private:
  class Guard;

  Doorbell& bell() { return group_->bell(group_->index()); }
  void Run();
  void CheckWakeUp(std::uint32_t heard, std::unique_lock<std::mutex>* driving);
  bool SpinUntilRung(std::uint32_t heard, Clock::duration time);
  bool MayDriveInPassing(Sequencer::GroupState group);
  std::chrono::microseconds Nap(Clock::duration idle);
  bool DriveUntil(const std::atomic<bool>& ended, Clock::duration spin, Clock::duration most);

  MemberState* const state_;
  Communicator* const communicator_;
  LocalGroup* const group_;
  Submission* const submission_;
  Progress progress_;
  const Clock::duration spin_;  // of the thread itself, before it sleeps
  SpinBudget waiting_;          // of a caller that only waits
  SpinBudget passing_;          // of a caller that has other work
  SpinBudget ending_;           // likewise, but it has submitted the last of a group

  // Held by the thread but while it sleeps, or by a Guard.
  std::mutex driving_;
  std::atomic<bool> stopping_{false};
  std::thread thread_;  // last: it uses the others
};

}  // namespace tf_smddp

#endif  // TF_SMDDP_KERNELS_ENGINE_CORE_PROGRESS_THREAD_H_

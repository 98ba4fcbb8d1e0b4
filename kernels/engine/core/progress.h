// Progress: all that moves the requests of one communicator on this rank after they have been submitted.
//
// Place in the stack: the engine's heart; one for each communicator and rank. It reads the launch log,
// delivers what is done, runs the batches, and ends and begins incarnations. It has no thread: the progress
// thread and callers that wait (progress_thread.h) call Step, one at a time.
#ifndef TF_SMDDP_KERNELS_ENGINE_CORE_PROGRESS_H_
#define TF_SMDDP_KERNELS_ENGINE_CORE_PROGRESS_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "kernels/common/rank_id.h"
#include "kernels/engine/core/batch_runner.h"
#include "kernels/engine/core/delivery.h"
#include "kernels/engine/core/failures.h"
#include "kernels/engine/core/log_reader.h"
#include "kernels/engine/core/member_state.h"
#include "kernels/engine/core/submission.h"
#include "kernels/engine/hosts/relay.h"
#include "kernels/engine/job/communicator.h"

namespace tf_smddp {

class Progress {
 public:
  using Completions = Delivery::Completions;

  // All outlive it.
  Progress(MemberState* state, Submission* submission, Failures* failures, Delivery* delivery);
  ~Progress();

  // Does what can be done now: at most one piece of a batch. Never waits for another rank's batch work. True
  // when there was something to do; then there may be more. A few callbacks are left in *held, unless it is
  // nullptr, for the caller to call outside of this; the completion thread calls the others. One thread at a
  // time.
  bool Step(Completions* held);

  // The work of the last step that had some, in a few words. Like Step.
  const char* last_work() const { return last_work_; }

  // Whether there may be something to do soon, for which nobody rings.
  bool polls() const {
    return runner_.polls() || (relay_ != nullptr && relay_->polls()) || (ended_ && !abandoned_);
  }

  // After a Step at the end of the job, when everything here has its error: ends what is on devices, once.
  // That may take long, so a caller who drives the progress leaves it to the progress thread.
  void EndDevices();

 private:
  bool ReadLog(Completions* held);
  bool RunBatch(Completions* held);
  void EndIncarnation();
  void BeginIncarnation();
  void Restart(std::uint64_t incarnation);
  void SettleLog();
  void LeaveNow();
  void ReturnIfAllHaveLeft();
  void EndJob();
  bool MoreMayCome();
  void TakeDone(const LogReader::Batch& places, BatchRunner::Requests* done);

  MemberState* const state_;
  Communicator* const communicator_;
  LocalGroup* const group_;
  Submission* const submission_;
  Failures* const failures_;
  Delivery* const delivery_;
  std::unique_ptr<Relay> relay_;  // only on the member that runs it
  LogReader reader_;
  BatchRunner runner_;

  std::uint64_t incarnation_ = 0;  // the one that runs, or will once open_
  bool open_ = true;               // it has begun
  bool ended_ = false;             // the job was aborted, and everything here has its error
  bool abandoned_ = false;         // and what was on devices has been ended
  const char* last_work_ = "nothing";
  // The rank that was the last to leave, if all return with the incarnation that is to begin; else no rank.
  RankId last_to_leave_;
};

}  // namespace tf_smddp

#endif  // TF_SMDDP_KERNELS_ENGINE_CORE_PROGRESS_H_

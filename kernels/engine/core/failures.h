// Failures: finds that a step has failed on this rank, and fails the communicator's incarnation for all
// ranks.
//
// Place in the stack: beside submission.h and below progress.h, which ends the incarnation.
//
// Note [Leaving]: a rank that shuts down sets `left`, then rings everyone. A rank that arrives at a request
// sets its bit, then looks at `left`. Both are sequentially consistent, so at least one of the two ranks
// notices: the one that leaves wakes a progress thread that finds the request waiting for it, or the one that
// arrives finds that the other has left.
#ifndef TF_SMDDP_KERNELS_ENGINE_CORE_FAILURES_H_
#define TF_SMDDP_KERNELS_ENGINE_CORE_FAILURES_H_

#include <cstdint>
#include <string>

#include "kernels/engine/core/member_state.h"

namespace tf_smddp {

class Failures {
 public:
  // It outlives this.
  explicit Failures(MemberState* state) : state_(state) {}

  // Fails `incarnation` for all ranks with `text`. `step` is this rank's step that has failed, or that learns
  // of it now. Any thread.
  void Fail(std::uint64_t incarnation, StepId step, const std::string& text);

  // Handles an error of Resolve, or of making room for an output: damage and a lost device end the job,
  // anything else the incarnation. Any thread.
  void FailRequest(const PendingRequest& pending, const Status& status);

  // `pending` differs from what member `other_member` has in its place, which is `others`. Any thread.
  void FailOnMismatch(const PendingRequest& pending, const Manifest& others, int other_member);

  // See Engine. Any thread.
  void Cancel(std::uint64_t id, const std::string& reason);
  void CancelAll(const std::string& reason);
  void EndGroup(std::uint64_t ticket, bool failed, const std::string& reason);
  void FailStep(StepId step, const std::string& reason);
  void FailGroup(std::uint64_t ticket, const std::string& reason);

  // The current incarnation has begun. Fails it at once if a step failed before that. Progress thread.
  void OpenIncarnation();

  // Ends the job when a request here waits for a rank that has shut down (Note [Leaving]). Progress thread.
  void CheckLeft();
  // Does what CheckLeft does while incarnation `next` has not begun, for which those members of this host are
  // needed that have not drained the last one, whether or not they have left; or when a caller waits for it
  // (`awaits_incarnation`).
  void CheckLeftBetweenIncarnations(std::uint64_t next, bool awaits_incarnation);
  // Ends the job when a caller here waits until all members have left `incarnation`, and one has shut down
  // instead. Progress thread.
  void CheckAllCanLeave(std::uint64_t incarnation);

 private:
  void CheckLeft(std::uint64_t shut_down, std::uint64_t undrained, bool awaits_incarnation);
  std::string HowTheyLeft(std::uint64_t members) const;

  MemberState* const state_;
};

}  // namespace tf_smddp

#endif  // TF_SMDDP_KERNELS_ENGINE_CORE_FAILURES_H_

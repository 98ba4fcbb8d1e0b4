// Delivery: brings the end of each request to its callback: success, or the error.
//
// Place in the stack: below submission.h and progress.h.
#ifndef TF_SMDDP_KERNELS_ENGINE_CORE_DELIVERY_H_
#define TF_SMDDP_KERNELS_ENGINE_CORE_DELIVERY_H_

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/engine/core/member_state.h"

namespace tf_smddp {

class Delivery {
 public:
  using Completions = std::vector<CompletionThread::Completion>;

  // It outlives this.
  explicit Delivery(MemberState* state) : state_(state) {}

  // Requests that have been taken from pending have completed on all ranks. `small`: without a batch. Calls
  // trivial callbacks; leaves a few others to the caller in *held, unless it is nullptr, and the rest to the
  // completion thread. Progress thread.
  void Complete(const std::vector<PendingTable::Shared>& done, bool small, Completions* held);

  // `incarnation` has failed: everything pending of it gets the error. If nothing is, the user's next step
  // gets it, unless this rank has left. Progress thread.
  void FailIncarnation(std::uint64_t incarnation, std::uint64_t origin, const std::string& text, bool left);

  // The job was aborted: everything pending gets the error, or all but what a batch uses, and what comes is
  // refused. Any thread.
  void FailAll(const std::string& text, bool but_under_way = false);

  // The communicator has been removed: what has been submitted since gets an error. After the progress thread
  // has ended.
  void FailLate();

  // Counts and records a request that has ended with an error. Any thread.
  void CountFailed(const Request& request, Clock::time_point submitted, const Cost& cost);

  // Gives back what `pending` has in the arena besides its tensors; a span that is being copied follows when
  // the copy has ended. Any thread.
  void FreeSpans(PendingRequest* pending);

 private:
  struct Ended;

  Status PutResult(const PendingRequest& pending);
  void Finish(const PendingTable::Shared& pending, Clock::time_point now, bool small, Ended* ended);
  void Fail(const std::vector<PendingTable::Shared>& requests, const std::string& text);
  bool HasEnded(const PendingRequest& pending);
  bool ArrivedLast(const PendingRequest& pending) const;
  static std::string ErrorText(const PendingRequest& pending, const std::string& text);
  void RingDeferring();

  MemberState* const state_;
};

}  // namespace tf_smddp

#endif  // TF_SMDDP_KERNELS_ENGINE_CORE_DELIVERY_H_

// Submission: takes a request of one communicator until it is launched.
//
// Place in the stack: between Engine (any thread submits) and Progress (reads the launch log). A request is
// entered in the readiness table; the rank that arrives last launches it. It reduces a small request on the
// spot, for all ranks, and the launch log then says that it is done.
#ifndef TF_SMDDP_KERNELS_ENGINE_CORE_SUBMISSION_H_
#define TF_SMDDP_KERNELS_ENGINE_CORE_SUBMISSION_H_

#include <atomic>
#include <cstdint>
#include <vector>

#include "kernels/engine/core/delivery.h"
#include "kernels/engine/core/failures.h"
#include "kernels/engine/core/gradient_check.h"
#include "kernels/engine/core/member_state.h"
#include "kernels/engine/watch/stall_report.h"
#include "kernels/fusion/launch_order.h"

namespace tf_smddp {

class Submission {
 public:
  // All outlive it.
  Submission(MemberState* state, Failures* failures, Delivery* delivery);

  // Takes a valid request. Its callback is called later with the outcome, or at once, in this thread, when
  // the engine refuses it. Returns its id, or 0 when it was refused. Any thread.
  std::uint64_t Submit(Request&& request);

  // Ends waits in here, and refuses what is submitted from now on: the communicator is being removed. Any
  // thread.
  void Refuse(const Status& reason);

  // Enters deferred requests whose place has become free. True when there was one. Progress thread.
  bool RetryDeferred();

  // Requests of other ranks have become ready because this rank left: launches them. Progress thread.
  void LaunchForOthers(const std::vector<Place>& places);

  // All ranks of all hosts have arrived at `place`: launches it. `seals`: its batch ends with it. Progress
  // thread of the relay.
  void LaunchInTurn(Place place, bool seals);

  // All ranks of all hosts have arrived, and the results are in place already: tells the ranks of this host.
  void AnnounceInTurn(Place place);

  // Seals the open batch. True when there was one. Progress thread.
  bool SealOpen() { return order_.SealOpen(); }

  // Whether a caller that drives the progress has launched something since the last look, for which it did
  // not ring this rank's progress thread. Whoever takes it looks at the log next, or rings. Any thread.
  bool TakeOwedRing() {
    const bool taken =
        owed_ring_.load(std::memory_order_seq_cst) && owed_ring_.exchange(false, std::memory_order_seq_cst);
    if (taken) owed_rings_taken_.fetch_add(1, std::memory_order_seq_cst);
    return taken;
  }
  // How many have been taken so far. Any thread.
  std::uint64_t owed_rings_taken() const { return owed_rings_taken_.load(std::memory_order_seq_cst); }

  // The group state of the last submitted request, if this rank's CPU computes while the network moves data;
  // otherwise kNoGroup. While the group is open, this rank computes the rest of it. Any thread.
  Sequencer::GroupState last_group() const { return last_group_.load(std::memory_order_relaxed); }

  // Whether this rank has submitted a part of the last request's group. Any thread.
  bool group_open() const { return group_open_.load(std::memory_order_relaxed); }

  // Appends this rank's requests that were submitted at `before` or earlier and still wait for other ranks.
  // Any thread.
  void CollectWaiting(Clock::time_point before, std::vector<WaitingRequest>* waiting);

 private:
  Status PlaceData(PendingRequest* pending);
  bool KeepsOnDevice(const Request& request);
  Status Bounce(PendingRequest* pending);
  bool Enter(PendingRequest* pending);
  void Launch(const PendingRequest& pending);
  std::uint64_t Missing(const PendingRequest& pending, bool entered);

  MemberState* const state_;
  Failures* const failures_;
  Delivery* const delivery_;
  LaunchOrder order_;
  GradientCheck gradient_check_;
  std::atomic<std::uint64_t> next_id_{1};
  std::atomic<Sequencer::GroupState> last_group_{Sequencer::GroupState::kNoGroup};
  std::atomic<bool> group_open_{false};
  std::atomic<bool> owed_ring_{false};
  std::atomic<std::uint64_t> owed_rings_taken_{0};
};

}  // namespace tf_smddp

#endif  // TF_SMDDP_KERNELS_ENGINE_CORE_SUBMISSION_H_

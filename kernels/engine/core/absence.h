// Absence: whether this rank has left a communicator, for the callers that ask for it and wait.
//
// Place in the stack: local to a rank. Progress does what is asked for here; JobEngine asks.
//
// A rank that has left is not waited for any more (Note [Leaving a communicator] in
// kernels/control/readiness_table.h), but still follows the communicator's incarnations. When all members
// have left, all return with the next incarnation.
#ifndef TF_SMDDP_KERNELS_ENGINE_CORE_ABSENCE_H_
#define TF_SMDDP_KERNELS_ENGINE_CORE_ABSENCE_H_

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>

#include "kernels/common/rank_id.h"

namespace tf_smddp {

class Absence {
 public:
  // Asks that this rank leave, if it is there; ring its bell afterwards. Any thread.
  void AskToLeave();

  // Block until this rank has left since AskToLeave, or is back; or until `patience` has passed: then false.
  // Once for each time that it was away, *last is the rank of the job that was the last to leave; then it is
  // no rank. Any thread but the engine's own.
  bool AwaitLeft(std::chrono::milliseconds patience);
  bool AwaitReturn(std::chrono::milliseconds patience, RankId* last);

  // Whether a caller wants this rank to leave; whether it has; whether a caller waits for its return. Any
  // thread.
  bool asked() const { return state_.load(std::memory_order_seq_cst) == kAsked; }
  bool left() const { return state_.load(std::memory_order_seq_cst) == kLeft; }
  bool return_awaited() const { return waiting_.load(std::memory_order_seq_cst) > 0; }

  // Progress thread.
  void Leave() { Set(kLeft); }
  void Return(RankId last);

 private:
  enum State { kThere, kAsked, kLeft };
  void Set(State state);

  std::atomic<State> state_{kThere};  // changes with mu_ held
  std::atomic<int> waiting_{0};       // callers of AwaitReturn
  std::mutex mu_;
  std::condition_variable changed_;
  RankId last_;  // guarded by mu_; no rank: AwaitReturn has returned it
};

}  // namespace tf_smddp

#endif  // TF_SMDDP_KERNELS_ENGINE_CORE_ABSENCE_H_

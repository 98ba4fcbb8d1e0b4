// Starvation: ends the job when ranks wait for each other for ever, because none of them has a thread left to
// make the call that another one waits for.
//
// Place in the stack: beside the stall watch, which cannot tell such a wait from a slow rank. Not here: which
// threads wait, and when none is left (kernels/tf/xla/blocked_calls.h).
//
// Note [Starved ranks]: a call of a compiled program blocks its thread until the other ranks have made the
// same call. A rank is starved while such calls block all threads of a pool: it runs no other program until
// one of them ends. If each of the calls waits for a rank that is starved, too, none of them ends, however
// long the ranks wait. A rank that is starved, but waits for a rank with threads left, goes on when that rank
// arrives; so the pool's size alone decides nothing.
//
// Each starved rank publishes a number that changes with the calls that block it. A rank whose condition
// holds for kPatience, while no number has changed, ends the job.
#ifndef TF_SMDDP_KERNELS_ENGINE_STARVATION_H_
#define TF_SMDDP_KERNELS_ENGINE_STARVATION_H_

#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "kernels/common/clock.h"
#include "kernels/engine/job.h"
#include "kernels/engine/waiting_request.h"

namespace tf_smddp {

class Starvation {
 public:
  static constexpr Clock::duration kPatience = std::chrono::seconds(5);

  // `job` outlives it.
  explicit Starvation(Job* job) : job_(job) {}

  // This rank is starved by calls in the communicators `calls`; `number` is another one, not 0, whenever the
  // calls are others. `waiting`: the pending requests of this rank. Aborts the job if the ranks will wait for
  // ever; `remedy` ends the message. To be called a few times within kPatience. Any thread.
  void Starved(std::uint64_t number, const std::vector<CommunicatorId>& calls,
               const std::vector<WaitingRequest>& waiting, const std::string& remedy);

  // This rank is not starved any more. Any thread.
  void Fed();

 private:
  Job* const job_;
  std::mutex mu_;
  std::vector<std::uint64_t>
      seen_;                 // guarded by mu_; by local rank: what each had published when since_ was set
  Clock::time_point since_;  // guarded by mu_
};

}  // namespace tf_smddp

#endif  // TF_SMDDP_KERNELS_ENGINE_STARVATION_H_

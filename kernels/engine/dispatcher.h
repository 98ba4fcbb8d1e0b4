// Dispatcher: takes a request to readiness, and from its end to its callback.
//
// Place in the stack: between Engine (any thread submits) and the comm thread (follows the logs). Submitting
// enters the request in the readiness table; the rank that arrives last launches it: a small request is
// reduced on the spot and appended to the small log, any other goes to the launch log by way of the
// fusion-buffer manager.
#ifndef TF_SMDDP_KERNELS_ENGINE_DISPATCHER_H_
#define TF_SMDDP_KERNELS_ENGINE_DISPATCHER_H_

#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "kernels/collectives/collective.h"
#include "kernels/engine/completion_thread.h"
#include "kernels/engine/job.h"
#include "kernels/engine/pending.h"
#include "kernels/fusion/fusion_buffer_manager.h"

namespace tf_smddp {

// What the data plane is told of a request.
Call MakeCall(const Manifest& manifest, int num_ranks);

class Dispatcher {
 public:
  // All outlive it.
  Dispatcher(Job* job, CompletionThread* completions);

  // Takes a valid request. Its callback is called later with the outcome, or at once, in this thread, when
  // the engine does not take it. Returns its id. Any thread.
  std::uint64_t Submit(Request request);

  // Withdraws request `id` with `reason`, which ends the job for all ranks, unless the request is ready or
  // done already: then nothing happens. Any thread.
  void Cancel(std::uint64_t id, const std::string& reason);

  // Enters deferred requests whose place has become free. True when there was one. Comm thread.
  bool RetryDeferred();

  // Ends the job when a request here waits for a rank that has shut down (Note [Leaving] in dispatcher.cc).
  // Comm thread.
  void CheckLeft();

  // The pointers of all ranks to their tensors of a ready request. False when some tensor lies in private
  // memory. A pointer that leads outside an arena ends the job. Any thread, between readiness and this rank's
  // Complete.
  bool ResolveAll(const PendingRequest& pending, const void** inputs, void** outputs);

  // Requests in `places` have completed on all ranks: delivers them, and gives their generations back. Comm
  // thread.
  void Complete(const std::vector<Place>& places);

  // The job was aborted: delivers the error to everything that is pending, and refuses what comes. Comm
  // thread.
  void FailAll(const std::string& text);

  PendingTable& pending() { return pending_; }
  FusionBufferManager& fusion() { return fusion_; }

 private:
  Status ResolvePairing(PendingRequest* pending);
  void PlaceData(PendingRequest* pending);
  bool Enter(const PendingRequest& pending);
  void Launch(const PendingRequest& pending);
  void AbortOnMismatch(const PendingRequest& pending, const Manifest& others, int other_rank);

  Job* const job_;
  CompletionThread* const completions_;
  FusionBufferManager fusion_;
  PendingTable pending_;
  std::atomic<std::uint64_t> next_id_{1};

  std::mutex ordinals_mu_;
  std::uint64_t next_sequence_ = 0;                          // guarded by ordinals_mu_
  std::unordered_map<std::string, std::uint64_t> ordinals_;  // by name; guarded by ordinals_mu_
};

}  // namespace tf_smddp

#endif  // TF_SMDDP_KERNELS_ENGINE_DISPATCHER_H_

// FailureMemory: remembers which steps of this rank have failed, and why. All communicators of a rank share
// one.
//
// Place in the stack: local to a rank; no shared memory.
//
// A failure has an *origin*, a number that no other failure of the job has. A step may use several
// communicators. When it fails in one, its requests in the others are withdrawn, and those communicators fail
// with the same origin. So each communicator fails once for one cause, and a rank's user sees one failure.
#ifndef TF_SMDDP_KERNELS_ENGINE_CORE_FAILURE_MEMORY_H_
#define TF_SMDDP_KERNELS_ENGINE_CORE_FAILURE_MEMORY_H_

#include <cstdint>
#include <deque>
#include <mutex>
#include <string>

#include "kernels/engine/request.h"

namespace tf_smddp {

class FailureMemory {
 public:
  explicit FailureMemory(int rank) : next_origin_((static_cast<std::uint64_t>(rank) << 40) + 1) {}

  // Remembers that step `step` has failed. The first call for a step counts; kNoStep is ignored. Any thread.
  void RememberStep(StepId step, std::uint64_t origin, const std::string& text);

  // Returns whether the step has failed, and sets why. Any thread.
  bool HasFailed(StepId step, std::uint64_t* origin, std::string* text);

  // Returns the origin of a failure that step `step` causes: the origin that the step has failed with, or a
  // new one. Any thread.
  std::uint64_t OriginOf(StepId step);

  // Replaces origin `from` of this rank by `to`: another rank was the first to record that failure. Any
  // thread.
  void Rename(std::uint64_t from, std::uint64_t to);

  // Returns an origin that no failure has yet. Any thread.
  std::uint64_t NewOrigin();

  // Remembers, and returns, whether a failure of this origin has reached this rank's user. Any thread.
  void Delivered(std::uint64_t origin);
  bool WasDelivered(std::uint64_t origin);

 private:
  // A process has fewer steps, and a job fewer failures, at a time.
  static constexpr std::size_t kRemembered = 256;

  struct FailedStep {
    StepId step;
    std::uint64_t origin;
    std::string text;
  };

  std::mutex mu_;                        // guards everything below
  std::uint64_t next_origin_;            // the rank in the upper bits
  std::deque<FailedStep> failed_steps_;  // the last ones
  std::deque<std::uint64_t> delivered_;  // the last ones
};

}  // namespace tf_smddp

#endif  // TF_SMDDP_KERNELS_ENGINE_CORE_FAILURE_MEMORY_H_

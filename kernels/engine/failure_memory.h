// FailureMemory: which steps of this rank have failed, and why; one for all communicators of a rank.
//
// Place in the stack: local to a rank; no shared memory.
//
// A failure has an *origin*, a number that no other failure of the job has. A step may use several
// communicators: when it fails in one, its requests in the others are withdrawn, and fail those with the same
// origin. So each communicator fails once for one cause, and a rank's user is told once.
#ifndef TF_SMDDP_KERNELS_ENGINE_FAILURE_MEMORY_H_
#define TF_SMDDP_KERNELS_ENGINE_FAILURE_MEMORY_H_

#include <cstdint>
#include <deque>
#include <mutex>
#include <string>

#include "kernels/engine/request.h"

namespace tf_smddp {

class FailureMemory {
 public:
  explicit FailureMemory(int rank) : next_origin_((static_cast<std::uint64_t>(rank) << 40) + 1) {}

  // Step `step` has failed. The first call for a step counts; kNoStep is not remembered. Any thread.
  void RememberStep(StepId step, std::uint64_t origin, const std::string& text);

  // Whether the step has failed, and why. Any thread.
  bool HasFailed(StepId step, std::uint64_t* origin, std::string* text);

  // The origin of a failure that step `step` causes: of the failure that it has failed with, or a new one.
  // Any thread.
  std::uint64_t OriginOf(StepId step);

  // Failure `from` of this rank has turned out to be a part of `to`, which was first. Any thread.
  void Rename(std::uint64_t from, std::uint64_t to);

  // One that no failure has yet. Any thread.
  std::uint64_t NewOrigin();

  // A failure of this origin has reached this rank's user. Any thread.
  void Delivered(std::uint64_t origin);
  bool WasDelivered(std::uint64_t origin);

 private:
  // More than a process has steps, or a job failures, at a time.
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

#endif  // TF_SMDDP_KERNELS_ENGINE_FAILURE_MEMORY_H_

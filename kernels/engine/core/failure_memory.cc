#include "kernels/engine/core/failure_memory.h"

#include <algorithm>

namespace tf_smddp {

void FailureMemory::RememberStep(StepId step, std::uint64_t origin, const std::string& text) {
  if (step == kNoStep) return;
  std::lock_guard<std::mutex> lock(mu_);
  for (const FailedStep& failed : failed_steps_) {
    if (failed.step == step) return;
  }
  failed_steps_.push_back({step, origin, text});
  if (failed_steps_.size() > kRemembered) failed_steps_.pop_front();
}

bool FailureMemory::HasFailed(StepId step, std::uint64_t* origin, std::string* text) {
  if (step == kNoStep) return false;
  std::lock_guard<std::mutex> lock(mu_);
  for (const FailedStep& failed : failed_steps_) {
    if (failed.step != step) continue;
    *origin = failed.origin;
    *text = failed.text;
    return true;
  }
  return false;
}

std::uint64_t FailureMemory::OriginOf(StepId step) {
  std::uint64_t origin;
  std::string text;
  return HasFailed(step, &origin, &text) ? origin : NewOrigin();
}

std::uint64_t FailureMemory::NewOrigin() {
  std::lock_guard<std::mutex> lock(mu_);
  return next_origin_++;
}

void FailureMemory::Rename(std::uint64_t from, std::uint64_t to) {
  if (from == to) return;
  std::lock_guard<std::mutex> lock(mu_);
  for (FailedStep& failed : failed_steps_) {
    if (failed.origin == from) failed.origin = to;
  }
}

void FailureMemory::Delivered(std::uint64_t origin) {
  std::lock_guard<std::mutex> lock(mu_);
  if (std::find(delivered_.begin(), delivered_.end(), origin) != delivered_.end()) return;
  delivered_.push_back(origin);
  if (delivered_.size() > kRemembered) delivered_.pop_front();
}

bool FailureMemory::WasDelivered(std::uint64_t origin) {
  std::lock_guard<std::mutex> lock(mu_);
  return std::find(delivered_.begin(), delivered_.end(), origin) != delivered_.end();
}

}  // namespace tf_smddp

// AbortRecord: the flag in shared memory that ends the job for all ranks, with the reason.
//
// Place in the stack: above common/. The flag is set at most once and never cleared. The record wakes nobody:
// the engine rings every doorbell after Raise.
#ifndef TF_SMDDP_KERNELS_CONTROL_ABORT_RECORD_H_
#define TF_SMDDP_KERNELS_CONTROL_ABORT_RECORD_H_

#include <atomic>
#include <cstdint>
#include <string>

namespace tf_smddp {

class AbortRecord {
 public:
  // Aborts the job, unless it has been aborted already. The first call of all ranks wins: its text becomes
  // the error on every rank. Returns whether this call was the first. Any thread of any process; the process
  // may die at any instruction in here.
  bool Raise(const std::string& text);

  bool raised() const { return state_.load(std::memory_order_acquire) != kNone; }

  // Returns the reason. If another process is still writing it, waits for up to 0.2 s; if that process died
  // meanwhile, returns a sentence that says so. Call it only after raised() was true.
  std::string Text() const;

 private:
  enum : std::uint32_t { kNone = 0, kWriting = 1, kSet = 2 };
  static constexpr std::size_t kTextBytes = 4096;

  std::atomic<std::uint32_t> state_;
  char text_[kTextBytes];
};

}  // namespace tf_smddp

#endif  // TF_SMDDP_KERNELS_CONTROL_ABORT_RECORD_H_

// AbortRecord: the word in shared memory that ends the job for all ranks, with its reason.
//
// Place in the stack: above common/. Set once and never cleared. Not here: who is told (the engine rings
// every doorbell after Raise).
#ifndef TF_SMDDP_KERNELS_CONTROL_ABORT_RECORD_H_
#define TF_SMDDP_KERNELS_CONTROL_ABORT_RECORD_H_

#include <atomic>
#include <cstdint>
#include <string>

namespace tf_smddp {

class AbortRecord {
 public:
  // The first call of all ranks wins: its text is everyone's error. Returns whether this was it. Any thread
  // of any process; the caller may die at any instruction in here.
  bool Raise(const std::string& text);

  bool raised() const { return state_.load(std::memory_order_acquire) != kNone; }

  // The reason. Waits briefly for a text that is being written; one whose writer died halfway is replaced by
  // a sentence that says so. Only after raised().
  std::string Text() const;

 private:
  enum : std::uint32_t { kNone = 0, kWriting = 1, kSet = 2 };
  static constexpr std::size_t kTextBytes = 4096;

  std::atomic<std::uint32_t> state_;
  char text_[kTextBytes];
};

}  // namespace tf_smddp

#endif  // TF_SMDDP_KERNELS_CONTROL_ABORT_RECORD_H_

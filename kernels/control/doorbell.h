// Doorbell: wakes the thread that drives a communicator's progress on one rank, from any process.
//
// Place in the stack: above common/futex.h. Doorbells lie in shared memory (job_segment.h).
//
// The *progress thread* of a communicator on a rank is the thread that reads the log and moves the data at
// this moment: the engine's own thread, or a calling thread that takes its place while it sleeps
// (kernels/engine/core/progress_thread.h). There is at most one at a time.
//
// Note [No lost wake-up]: a progress thread may wait for an appended entry, a staged chunk, the end of a
// batch, a retired slot, the abort flag, or the end of a rank. The writer of such a change
//   1. publishes the change,
//   2. calls Ring.
// The progress thread
//   1. calls Listen,
//   2. checks everything that it may wait for,
//   3. passes the result of Listen to Wait.
// If Ring came after Listen, the word differs from the result of Listen, and Wait returns at once.
// `sleeping_` only saves a system call in Ring: Wait increments it before the kernel compares the word, and
// Ring reads it after it has incremented the word. Both are sequentially consistent, so at least one side
// sees the other.
//
// Hushing. A calling thread that drives progress polls the word itself, so it hushes the bell: Ring then does
// not pay for waking the engine's thread. When it stops, it calls Unhush, which wakes the engine's thread if
// the bell has rung since the calling thread last looked. By the same argument nothing is lost: Unhush clears
// `hushed_` before it reads the word, and Ring reads `hushed_` after it has incremented the word.
#ifndef TF_SMDDP_KERNELS_CONTROL_DOORBELL_H_
#define TF_SMDDP_KERNELS_CONTROL_DOORBELL_H_

#include <atomic>
#include <chrono>
#include <cstdint>

#include "kernels/common/futex.h"

namespace tf_smddp {

class Doorbell {
 public:
  // Any thread of any process.
  void Ring() {
    word_.fetch_add(1, std::memory_order_seq_cst);
    if (sleeping_.load(std::memory_order_seq_cst) != 0 && hushed_.load(std::memory_order_seq_cst) == 0) {
      FutexWakeAll(word_);
    }
  }

  // The methods below are for the progress thread of the bell's owner.

  // Returns the number of rings so far, for RangSince, Wait and Unhush.
  std::uint32_t Listen() const { return word_.load(std::memory_order_seq_cst); }

  // Returns whether the bell has rung since Listen returned `heard`. A thread may poll it before it calls
  // Wait.
  bool RangSince(std::uint32_t heard) const { return word_.load(std::memory_order_seq_cst) != heard; }

  // Sleeps until the bell has rung since `heard`, or `timeout` has passed. The bell must not be hushed.
  void Wait(std::uint32_t heard, std::chrono::microseconds timeout) {
    sleeping_.fetch_add(1, std::memory_order_seq_cst);
    if (word_.load(std::memory_order_seq_cst) == heard) FutexWait(word_, heard, timeout);
    sleeping_.fetch_sub(1, std::memory_order_seq_cst);
  }

  // Between Hush and Unhush, Ring wakes nobody. Unhush wakes the thread in Wait if the bell has rung since
  // `heard`.
  void Hush() { hushed_.store(1, std::memory_order_seq_cst); }
  void Unhush(std::uint32_t heard) {
    hushed_.store(0, std::memory_order_seq_cst);
    if (RangSince(heard) && sleeping_.load(std::memory_order_seq_cst) != 0) FutexWakeAll(word_);
  }

 private:
  std::atomic<std::uint32_t> word_;
  std::atomic<std::uint32_t> sleeping_;  // number of threads in Wait
  std::atomic<std::uint32_t> hushed_;
};

}  // namespace tf_smddp

#endif  // TF_SMDDP_KERNELS_CONTROL_DOORBELL_H_

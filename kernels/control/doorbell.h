// Doorbell: what wakes a rank's comm thread, from any process.
//
// Place in the stack: above common/futex.h. Lies in shared memory, one per rank.
//
// Note [No lost wake-up]: whoever makes something true that a comm thread may wait for (an entry appended, a
// chunk staged, a batch ended, a slot retired, the abort word set, a rank gone) publishes it first and calls
// Ring second. The comm thread calls Listen first, looks at all it may wait for second, and passes what
// Listen gave to Wait third. Ring's increment makes that Wait return at once if it came after Listen.
// `sleeping_` only saves the system call: it is raised before the kernel compares the word, and read after
// the increment, both sequentially consistent, so one of the two sides sees the other.
//
// A thread that stands in for a sleeping comm thread (CommThread::Assist) hushes the bell, so that nobody
// pays for waking it, and looks by itself. In the end it calls Unhush, which wakes the comm thread if the
// bell has rung since the stand-in last looked; again, `hushed_` is cleared before the word is read there,
// and read after the increment in Ring.
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

  // The rest is for the owner's comm thread, or who stands in for it.

  std::uint32_t Listen() const { return word_.load(std::memory_order_seq_cst); }

  // True at once when the bell rang since `heard`; the way to spin before Wait.
  bool RangSince(std::uint32_t heard) const { return word_.load(std::memory_order_seq_cst) != heard; }

  // Sleeps until the bell has rung since `heard`, or `timeout`. The bell is not hushed.
  void Wait(std::uint32_t heard, std::chrono::milliseconds timeout) {
    sleeping_.fetch_add(1, std::memory_order_seq_cst);
    if (word_.load(std::memory_order_seq_cst) == heard) FutexWait(word_, heard, timeout);
    sleeping_.fetch_sub(1, std::memory_order_seq_cst);
  }

  // Who sleeps, sleeps on whatever rings, until Unhush, which wakes it if the bell has rung since `heard`.
  void Hush() { hushed_.store(1, std::memory_order_seq_cst); }
  void Unhush(std::uint32_t heard) {
    hushed_.store(0, std::memory_order_seq_cst);
    if (RangSince(heard) && sleeping_.load(std::memory_order_seq_cst) != 0) FutexWakeAll(word_);
  }

 private:
  std::atomic<std::uint32_t> word_;
  std::atomic<std::uint32_t> sleeping_;  // threads in Wait: the comm thread, its stand-in
  std::atomic<std::uint32_t> hushed_;
};

}  // namespace tf_smddp

#endif  // TF_SMDDP_KERNELS_CONTROL_DOORBELL_H_

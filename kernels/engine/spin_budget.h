// SpinBudget: how long it has paid lately to wait without sleeping.
//
// Place in the stack: the bottom of engine/. Spinning spares a wake-up, some microseconds, when what is
// waited for comes soon; else it takes a core from those who could make it come.
#ifndef TF_SMDDP_KERNELS_ENGINE_SPIN_BUDGET_H_
#define TF_SMDDP_KERNELS_ENGINE_SPIN_BUDGET_H_

#include <algorithm>
#include <atomic>
#include <chrono>

#include "kernels/common/clock.h"

namespace tf_smddp {

// Any thread, all of it. Threads that meet here may lose a change, which only makes it learn later.
class SpinBudget {
 public:
  // `most`: what it gives; 0: never spin. It should be more than a wake-up takes, or ranks that sleep could
  // not find back to spinning.
  explicit SpinBudget(Clock::duration most) : most_(most) {}

  // How long to spin this time; 0: not at all. Where it has been in vain, it is tried again after a pause,
  // and a longer one the next time: in the end it takes less than a hundredth of a core.
  Clock::duration Next(Clock::time_point now) {
    if (in_vain_.load(std::memory_order_relaxed) < kPatience) return most_;
    const Clock::rep time = now.time_since_epoch().count();
    if (time < next_try_.load(std::memory_order_relaxed)) return Clock::duration::zero();
    const int pause = pause_.load(std::memory_order_relaxed);
    next_try_.store(time + pause * most_.count(), std::memory_order_relaxed);
    pause_.store(std::min(2 * pause, kLongestPause), std::memory_order_relaxed);
    return most_;
  }

  // What was waited for came within the time that Next gave.
  void Paid() {
    in_vain_.store(0, std::memory_order_relaxed);
    pause_.store(kShortestPause, std::memory_order_relaxed);
  }

  // It did not.
  void InVain() {
    if (in_vain_.load(std::memory_order_relaxed) < kPatience) {
      in_vain_.fetch_add(1, std::memory_order_relaxed);
    }
  }

 private:
  static constexpr int kPatience = 4;
  static constexpr int kShortestPause = 8, kLongestPause = 128;  // times `most`

  const Clock::duration most_;
  std::atomic<int> in_vain_{0};  // times in a row
  std::atomic<Clock::rep> next_try_{0};
  std::atomic<int> pause_{kShortestPause};
};

}  // namespace tf_smddp

#endif  // TF_SMDDP_KERNELS_ENGINE_SPIN_BUDGET_H_

// SpinBudget: decides from recent experience for how long to wait without sleeping.
//
// Place in the stack: the bottom of engine/. Spinning saves a wake-up, which takes some microseconds, if the
// event comes soon. Otherwise it takes a core from threads that could make the event happen.
#ifndef TF_SMDDP_KERNELS_ENGINE_CORE_SPIN_BUDGET_H_
#define TF_SMDDP_KERNELS_ENGINE_CORE_SPIN_BUDGET_H_

#include <algorithm>
#include <atomic>
#include <chrono>

#include "kernels/common/clock.h"

namespace tf_smddp {

// All methods: any thread. Threads that call them at once may lose a change, which only delays the learning.
class SpinBudget {
 public:
  // `most` is the time that Next returns; 0: never spin. `trial` is what it returns for a try after failures.
  // It should be longer than the event takes when the other ranks sleep, or ranks that sleep could never
  // return to spinning.
  explicit SpinBudget(Clock::duration most) : SpinBudget(most, most) {}
  SpinBudget(Clock::duration most, Clock::duration trial)
      : most_(most), trial_(most.count() > 0 ? trial : most) {}

  // Returns how long to spin this time; 0: not at all. After failures it allows a try only after a pause,
  // which doubles each time: in the end a trial of `most` takes less than a hundredth of a core.
  Clock::duration Next(Clock::time_point now) {
    if (in_vain_.load(std::memory_order_relaxed) < kPatience) return most_;
    const Clock::rep time = now.time_since_epoch().count();
    if (time < next_try_.load(std::memory_order_relaxed)) return Clock::duration::zero();
    const int pause = pause_.load(std::memory_order_relaxed);
    next_try_.store(time + pause * most_.count(), std::memory_order_relaxed);
    pause_.store(std::min(2 * pause, kLongestPause), std::memory_order_relaxed);
    return trial_;
  }

  // Reports that the event came within the time that Next returned.
  void Paid() {
    in_vain_.store(0, std::memory_order_relaxed);
    pause_.store(kShortestPause, std::memory_order_relaxed);
  }

  // Reports that it did not.
  void InVain() {
    if (in_vain_.load(std::memory_order_relaxed) < kPatience) {
      in_vain_.fetch_add(1, std::memory_order_relaxed);
    }
  }

 private:
  static constexpr int kPatience = 4;
  static constexpr int kShortestPause = 8, kLongestPause = 128;  // times `most`

  const Clock::duration most_, trial_;
  std::atomic<int> in_vain_{0};  // times in a row
  std::atomic<Clock::rep> next_try_{0};
  std::atomic<int> pause_{kShortestPause};
};

}  // namespace tf_smddp

#endif  // TF_SMDDP_KERNELS_ENGINE_CORE_SPIN_BUDGET_H_

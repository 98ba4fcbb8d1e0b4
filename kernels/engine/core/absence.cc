#include "kernels/engine/core/absence.h"

#include <utility>

namespace tf_smddp {

void Absence::AskToLeave() {
  std::lock_guard<std::mutex> lock(mu_);
  if (state_.load() == kThere) state_.store(kAsked, std::memory_order_seq_cst);
}

bool Absence::AwaitLeft(std::chrono::milliseconds patience) {
  std::unique_lock<std::mutex> lock(mu_);
  return changed_.wait_for(lock, patience, [this] { return state_.load() != kAsked; });
}

bool Absence::AwaitReturn(std::chrono::milliseconds patience, RankId* last) {
  std::unique_lock<std::mutex> lock(mu_);
  waiting_.fetch_add(1, std::memory_order_seq_cst);
  const bool back = changed_.wait_for(lock, patience, [this] { return state_.load() == kThere; });
  waiting_.fetch_sub(1, std::memory_order_seq_cst);
  if (back) *last = std::exchange(last_, RankId());
  return back;
}

void Absence::Return(RankId last) {
  {
    std::lock_guard<std::mutex> lock(mu_);
    last_ = last;
  }
  Set(kThere);
}

void Absence::Set(State state) {
  std::lock_guard<std::mutex> lock(mu_);
  state_.store(state, std::memory_order_seq_cst);
  changed_.notify_all();
}

}  // namespace tf_smddp

#include "kernels/cuda/event_waiter.h"

#include <utility>

#include "kernels/common/thread.h"

namespace tf_smddp::cuda {

EventWaiter::EventWaiter(const Driver* driver, Context context, const char* name)
    : driver_(driver), context_(context), thread_(StartThread(name, [this] { Run(); })) {}

void EventWaiter::Stop() {
  if (!thread_.joinable()) return;
  {
    std::lock_guard<std::mutex> lock(mu_);
    stopping_ = true;
  }
  changed_.notify_one();
  thread_.join();
}

void EventWaiter::Add(Event event, Reached reached) {
  {
    std::lock_guard<std::mutex> lock(mu_);
    waiting_.push_back({std::move(event), std::move(reached)});
  }
  changed_.notify_one();
}

void EventWaiter::Run() {
  const CurrentContext current(driver_, context_);
  for (;;) {
    Waiting next;
    {
      std::unique_lock<std::mutex> lock(mu_);
      changed_.wait(lock, [this] { return stopping_ || !waiting_.empty(); });
      if (waiting_.empty()) return;
      next = std::move(waiting_.front());
      waiting_.pop_front();
    }
    const EventHandle event = next.event.get();
    next.reached(event == nullptr ? Status()
                                  : driver_->Check("cuEventSynchronize", driver_->EventSynchronize(event)));
  }
}

}  // namespace tf_smddp::cuda

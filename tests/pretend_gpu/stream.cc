#include "tests/pretend_gpu/stream.h"

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>
#include <utility>

#include "tests/pretend_gpu/diagnostics.h"
#include "tests/pretend_gpu/settings.h"
#include "tests/pretend_gpu/sticky_error.h"

namespace pretend_gpu {
namespace {

std::uint64_t NextId() {
  static std::atomic<std::uint64_t> next{1};
  return next++;
}

}  // namespace

Stream::Stream(int device, bool waits_for_null_stream, int priority, std::string role)
    : device_(device),
      waits_for_null_stream_(waits_for_null_stream),
      priority_(priority),
      id_(NextId()),
      random_(GetSettings().seed * 1'000'003 + id_),
      role_(std::move(role)) {}

std::shared_ptr<Stream> Stream::Start(int device, bool waits_for_null_stream, int priority,
                                      std::string role) {
  std::shared_ptr<Stream> stream(new Stream(device, waits_for_null_stream, priority, std::move(role)));
  std::thread([stream] { stream->Run(); }).detach();
  return stream;
}

std::shared_ptr<Point> Stream::Push(Task task) {
  std::unique_lock<std::mutex> lock(mu_);
  const Mood mood = MoodOf(role_, id_);
  const std::uint64_t ticket = ++tickets_;
  auto end = std::make_shared<Point>(demand_, ticket);
  tail_ = end;
  queue_.push_back({std::move(task), mood, ticket, end, {Call::Name(), TraceClock(), 0}});
  pushed_.notify_one();
  if (mood == Mood::kPrompt && StreamThread::Current() == nullptr) {
    settled_.wait(lock, [&] { return done_ >= ticket || blocked_ > 0; });
  }
  return end;
}

void Stream::Run() {
  pthread_setname_np(pthread_self(), "pretend-stream");
  StreamThread::Current() = this;
  for (;;) {
    Queued next;
    {
      std::unique_lock<std::mutex> lock(mu_);
      running_wanted_elsewhere_ = nullptr;
      pushed_.wait(lock, [&] { return !queue_.empty() || closing_; });
      if (queue_.empty()) break;
      next = std::move(queue_.front());
      queue_.pop_front();
      running_wanted_elsewhere_ = next.task.wanted_elsewhere;
    }
    Delay(next);
    next.times.begin_us = TraceClock();
    if (next.mood == Mood::kPaced && next.task.works) {
      std::this_thread::sleep_for(std::chrono::microseconds(GetSettings().pace_us));
    }
    if (next.task.run && !IsBroken(device_)) {
      if (next.task.may_wait_for_host) {
        BlockedScope blocked;
        next.task.run();
      } else {
        next.task.run();
      }
    }
    if (next.task.works) TraceTask(role(), device_, next.times);
    // Who waits for the end may free at once what the task has used.
    next.task = {};
    next.end->Reach();
    {
      std::lock_guard<std::mutex> lock(mu_);
      done_ = next.ticket;
    }
    settled_.notify_all();
  }
}

void Stream::Delay(const Queued& queued) {
  using std::chrono::microseconds;
  if (queued.mood == Mood::kRandom) {
    const long most_us = GetSettings().delay_us;
    if (most_us == 0) return;
    const std::uint64_t drawn = random_();
    // Half of the tasks come at once, so that both orders of two streams are seen; one in fifty is late.
    long us = drawn % 2 == 0 ? static_cast<long>((drawn >> 8) % static_cast<std::uint64_t>(most_us)) : 0;
    if ((drawn >> 1) % 50 == 0) us = us * 10 + most_us;
    std::this_thread::sleep_for(microseconds(us));
  } else if (queued.mood == Mood::kLazy) {
    BlockedScope blocked;
    // Another process cannot wake this thread, so it looks from time to time.
    constexpr long kSliceUs = 2000;
    for (long left_us = GetSettings().lazy_us; left_us > 0; left_us -= kSliceUs) {
      if (demand_->AwaitFor(queued.ticket, microseconds(std::min(left_us, kSliceUs)))) return;
      if (WantedElsewhere()) return;
    }
  }
}

bool Stream::WantedElsewhere() {
  std::lock_guard<std::mutex> lock(mu_);
  if (running_wanted_elsewhere_ && running_wanted_elsewhere_()) return true;
  return std::any_of(queue_.begin(), queue_.end(), [](const Queued& queued) {
    return queued.task.wanted_elsewhere && queued.task.wanted_elsewhere();
  });
}

void Stream::SetBlocked(bool blocked) {
  {
    std::lock_guard<std::mutex> lock(mu_);
    blocked_ += blocked ? 1 : -1;
  }
  if (blocked) settled_.notify_all();
}

std::shared_ptr<Point> Stream::Tail() {
  std::lock_guard<std::mutex> lock(mu_);
  return tail_;
}

void Stream::Close() {
  std::lock_guard<std::mutex> lock(mu_);
  closing_ = true;
  pushed_.notify_one();
}

void Stream::SetRole(const std::string& role) {
  std::lock_guard<std::mutex> lock(mu_);
  role_ = role;
}

std::string Stream::role() {
  std::lock_guard<std::mutex> lock(mu_);
  return role_;
}

std::string Stream::Describe() {
  return "stream " + std::to_string(id_) + " (role " + role() + ", device " + std::to_string(device_) + ")";
}

}  // namespace pretend_gpu

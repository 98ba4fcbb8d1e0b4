#include "tests/pretend_gpu/point.h"

#include <algorithm>
#include <utility>

namespace pretend_gpu {

StreamThread*& StreamThread::Current() {
  thread_local StreamThread* current = nullptr;
  return current;
}

BlockedScope::BlockedScope() {
  if (StreamThread* thread = StreamThread::Current()) thread->SetBlocked(true);
}

BlockedScope::~BlockedScope() {
  if (StreamThread* thread = StreamThread::Current()) thread->SetBlocked(false);
}

void Demand::Raise(std::uint64_t ticket) {
  {
    std::lock_guard<std::mutex> lock(mu_);
    wanted_ = std::max(wanted_, ticket);
  }
  raised_.notify_all();
}

bool Demand::AwaitFor(std::uint64_t ticket, std::chrono::microseconds limit) {
  std::unique_lock<std::mutex> lock(mu_);
  // Not a steady clock: ThreadSanitizer of GCC 12 does not know how one waits for it.
  const auto end = std::chrono::system_clock::now() + limit;
  return raised_.wait_until(lock, end, [&] { return wanted_ >= ticket; });
}

Point::Point(std::shared_ptr<Demand> demand, std::uint64_t ticket)
    : demand_(std::move(demand)), ticket_(ticket) {}

void Point::Wait() {
  if (Reached()) return;
  demand_->Raise(ticket_);
  BlockedScope blocked;
  std::unique_lock<std::mutex> lock(mu_);
  reached_changed_.wait(lock, [&] { return reached_; });
}

bool Point::Reached() {
  std::lock_guard<std::mutex> lock(mu_);
  return reached_;
}

void Point::Reach() {
  {
    std::lock_guard<std::mutex> lock(mu_);
    reached_ = true;
    when_ = std::chrono::steady_clock::now();
  }
  reached_changed_.notify_all();
}

std::chrono::steady_clock::time_point Point::when() {
  std::lock_guard<std::mutex> lock(mu_);
  return when_;
}

}  // namespace pretend_gpu

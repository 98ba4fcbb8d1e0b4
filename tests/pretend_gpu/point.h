// Points on the time lines of streams, and waiting for them.
#ifndef TF_SMDDP_TESTS_PRETEND_GPU_POINT_H_
#define TF_SMDDP_TESTS_PRETEND_GPU_POINT_H_

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>

#include "tests/pretend_gpu/visibility.h"

namespace pretend_gpu {

// The thread of a stream, as what it calls sees it.
class StreamThread {
 public:
  // Says that this thread waits for something other than itself, so that nobody who wants it prompt waits on.
  virtual void SetBlocked(bool blocked) = 0;

  // The stream whose thread this is, or nullptr on the program's threads.
  static StreamThread*& Current();

 protected:
  ~StreamThread() = default;
};

// The thread of a stream is blocked while this lives. On a thread of the program it does nothing.
class PRETEND_GPU_SHARED BlockedScope {
 public:
  BlockedScope();
  ~BlockedScope();
  BlockedScope(const BlockedScope&) = delete;
  BlockedScope& operator=(const BlockedScope&) = delete;
};

// Up to which of a stream's tasks somebody waits. A stream counts its tasks by tickets, from 1. Any thread.
class Demand {
 public:
  void Raise(std::uint64_t ticket);

  // Waits until somebody wants `ticket`, at most for `limit`; returns whether somebody does.
  bool AwaitFor(std::uint64_t ticket, std::chrono::microseconds limit);

 private:
  std::mutex mu_;
  std::condition_variable raised_;
  std::uint64_t wanted_ = 0;  // guarded by mu_
};

// The end of one task.
class Point {
 public:
  Point(std::shared_ptr<Demand> demand, std::uint64_t ticket);

  // Returns when it is reached. The wait makes a lazy stream work up to it. Any thread.
  void Wait();

  // Returns whether it is reached. To ask is not to wait: it does not wake a lazy stream. Any thread.
  bool Reached();

  // Called once, by the stream.
  void Reach();

  // When it was reached; only after it was.
  std::chrono::steady_clock::time_point when();

 private:
  const std::shared_ptr<Demand> demand_;
  const std::uint64_t ticket_;
  std::mutex mu_;
  std::condition_variable reached_changed_;
  bool reached_ = false;                        // guarded by mu_
  std::chrono::steady_clock::time_point when_;  // guarded by mu_
};

}  // namespace pretend_gpu

#endif  // TF_SMDDP_TESTS_PRETEND_GPU_POINT_H_

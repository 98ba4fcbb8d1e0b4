// Streams: one thread each, which does one task after the other, when the policy lets it.
#ifndef TF_SMDDP_TESTS_PRETEND_GPU_STREAM_H_
#define TF_SMDDP_TESTS_PRETEND_GPU_STREAM_H_

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <vector>

#include "tests/pretend_gpu/point.h"
#include "tests/pretend_gpu/policy.h"
#include "tests/pretend_gpu/trace.h"
#include "tests/pretend_gpu/uses.h"

namespace pretend_gpu {

// The work that a stream does at its turn.
struct Task {
  std::function<void()> run;  // may be empty
  std::vector<Use> uses;      // memory that must live until the task is done
  // The task may wait for what the thread that enqueued it does next: it runs the program's code, or meets a
  // task of another stream. So a prompt stream does not make that thread wait for it.
  bool may_wait_for_host = false;
  // The task reads or writes memory, rather than to order others: on a paced stream it takes a time, and it
  // is in the trace.
  bool works = false;
  // Returns whether another process waits for the task; may be empty.
  std::function<bool()> wanted_elsewhere;
};

// All methods: any thread.
class Stream : public StreamThread {
 public:
  // The thread lives until Close, and until the tasks before it are done.
  static std::shared_ptr<Stream> Start(int device, bool waits_for_null_stream, int priority,
                                       std::string role);

  // Puts a task at the end of the stream, and returns its end. If the stream is prompt and this is a thread
  // of the program, the task is done at the return, or the stream is blocked.
  std::shared_ptr<Point> Push(Task task);

  // Returns the end of the last task, or nullptr if there was none.
  std::shared_ptr<Point> Tail();

  void Close();

  void SetRole(const std::string& role);
  std::string role();

  // Returns "stream 3 (role comm, device 0)".
  std::string Describe();

  int device() const { return device_; }
  std::uint64_t id() const { return id_; }
  int priority() const { return priority_; }
  // Whether it is ordered with the legacy default stream of its context, as streams without the flag
  // CU_STREAM_NON_BLOCKING are.
  bool waits_for_null_stream() const { return waits_for_null_stream_; }

 private:
  struct Queued {
    Task task;
    Mood mood;
    std::uint64_t ticket;
    std::shared_ptr<Point> end;
    TaskTimes times;
  };

  Stream(int device, bool waits_for_null_stream, int priority, std::string role);
  void Run();
  void Delay(const Queued& queued);
  bool WantedElsewhere();
  void SetBlocked(bool blocked) override;

  const int device_;
  const bool waits_for_null_stream_;
  const int priority_;
  const std::uint64_t id_;
  const std::shared_ptr<Demand> demand_ = std::make_shared<Demand>();
  std::mt19937_64 random_;  // its own thread only

  std::mutex mu_;
  std::condition_variable pushed_;
  std::condition_variable settled_;  // a task is done, or the stream is blocked
  std::deque<Queued> queue_;         // guarded by mu_, as is what follows
  std::shared_ptr<Point> tail_;
  std::string role_;
  std::function<bool()> running_wanted_elsewhere_;  // of the task that is at its turn
  std::uint64_t tickets_ = 0;
  std::uint64_t done_ = 0;
  int blocked_ = 0;
  bool closing_ = false;
};

}  // namespace pretend_gpu

#endif  // TF_SMDDP_TESTS_PRETEND_GPU_STREAM_H_

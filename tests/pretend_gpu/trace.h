// The trace: when each task was put on its stream, and when it ran, by the clock of the machine.
#ifndef TF_SMDDP_TESTS_PRETEND_GPU_TRACE_H_
#define TF_SMDDP_TESTS_PRETEND_GPU_TRACE_H_

#include <cstdint>
#include <string>

namespace pretend_gpu {

struct TaskTimes {
  const char* call;  // that enqueued it; "" for work of another library's thread
  std::int64_t queued_us;
  std::int64_t begin_us;
};

// Microseconds of the monotonic clock, which all processes share.
std::int64_t TraceClock();

// Appends a line for a task that ends now, if PRETEND_GPU_TRACE names a file: process, device, role of the
// stream, call, and the times at which it was queued, began and ended. Any thread.
void TraceTask(const std::string& role, int device, const TaskTimes& times);

}  // namespace pretend_gpu

#endif  // TF_SMDDP_TESTS_PRETEND_GPU_TRACE_H_

// How the stand-in speaks: the sentence that ends a test, and the log.
#ifndef TF_SMDDP_TESTS_PRETEND_GPU_DIAGNOSTICS_H_
#define TF_SMDDP_TESTS_PRETEND_GPU_DIAGNOSTICS_H_

#include <string>

#include "tests/pretend_gpu/visibility.h"

namespace pretend_gpu {

// Says on stderr which call did what to which object, and what to do about it; then aborts. The name of the
// call comes first, and is not part of the text. Any thread.
[[noreturn]] PRETEND_GPU_SHARED void End(const char* format, ...) __attribute__((format(printf, 1, 2)));

// Writes a line to stderr if PRETEND_GPU_LOG=1. Any thread.
PRETEND_GPU_SHARED void Log(const char* format, ...) __attribute__((format(printf, 1, 2)));

// Lives as long as an API function that does something runs. It gives sentences the name of the function that
// the program called, which is the outermost one: the runtime API calls the driver API.
// Ends the process in a forked child, and in a host function, where CUDA forbids its calls.
class PRETEND_GPU_SHARED Call {
 public:
  explicit Call(const char* name);
  ~Call();
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  // Returns the name of this thread's call, or "" outside of calls.
  static const char* Name();

 private:
  const bool outermost_;
};

// From here on, a forked child that calls the stand-in ends with a sentence: no stream's thread lives there.
void ForbidForks();

}  // namespace pretend_gpu

#endif  // TF_SMDDP_TESTS_PRETEND_GPU_DIAGNOSTICS_H_

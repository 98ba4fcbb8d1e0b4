// The start of the engine's threads.
#ifndef TF_SMDDP_KERNELS_COMMON_THREAD_H_
#define TF_SMDDP_KERNELS_COMMON_THREAD_H_

#include <functional>
#include <stdexcept>
#include <thread>

#include "kernels/common/status.h"

namespace tf_smddp {

// Is thrown when the system refuses a thread; what() is a sentence with the remedy.
class ThreadRefused : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Starts `body` in a thread called `name` (15 characters at most) with all signals blocked, so that
// handlers of the process (Python's for Ctrl-C) always run in its other threads. Throws ThreadRefused.
std::thread StartThread(const char* name, std::function<void()> body);

// Makes the calling thread's sleeps end on time. Linux may add 50 us otherwise.
void SleepExactly();

// Checks whether `count` threads can be started now, by starting and ending them. Errors: Internal, with the
// remedy.
Status ProbeThreads(int count);

}  // namespace tf_smddp

#endif  // TF_SMDDP_KERNELS_COMMON_THREAD_H_

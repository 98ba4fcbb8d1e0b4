// Starting the engine's threads.
#ifndef TF_SMDDP_KERNELS_COMMON_THREAD_H_
#define TF_SMDDP_KERNELS_COMMON_THREAD_H_

#include <functional>
#include <stdexcept>
#include <thread>

#include "kernels/common/status.h"

namespace tf_smddp {

// The system refused a thread; what() is a sentence with the remedy.
class ThreadRefused : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Starts `body` in a thread called `name` (15 characters at most) with all signals blocked, so that the
// process's own handlers (Python's Ctrl-C) always run in the process's own threads. Throws ThreadRefused.
std::thread StartThread(const char* name, std::function<void()> body);

// Whether `count` threads can be started now: starts them, and ends them. Errors: Internal, with the remedy.
Status ProbeThreads(int count);

}  // namespace tf_smddp

#endif  // TF_SMDDP_KERNELS_COMMON_THREAD_H_

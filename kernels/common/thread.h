// Starting the engine's threads.
#ifndef TF_SMDDP_KERNELS_COMMON_THREAD_H_
#define TF_SMDDP_KERNELS_COMMON_THREAD_H_

#include <functional>
#include <thread>

namespace tf_smddp {

// Starts `body` in a thread called `name` (15 characters at most) with all signals blocked, so that the
// process's own handlers (Python's Ctrl-C) always run in the process's own threads.
std::thread StartThread(const char* name, std::function<void()> body);

}  // namespace tf_smddp

#endif  // TF_SMDDP_KERNELS_COMMON_THREAD_H_

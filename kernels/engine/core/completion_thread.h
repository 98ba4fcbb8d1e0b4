// CompletionThread: runs callbacks, because TensorFlow may run the rest of a step inside a callback. The
// progress thread must not do that.
#ifndef TF_SMDDP_KERNELS_ENGINE_CORE_COMPLETION_THREAD_H_
#define TF_SMDDP_KERNELS_ENGINE_CORE_COMPLETION_THREAD_H_

#include <condition_variable>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "kernels/common/status.h"
#include "kernels/engine/request.h"

namespace tf_smddp {

class CompletionThread {
 public:
  using Completion = std::pair<DoneCallback, Status>;

  CompletionThread();
  // Runs the queued callbacks, then ends. Must not be called from a callback.
  ~CompletionThread();

  // Queues `completions` to run in this order. Any thread.
  void Push(std::vector<Completion> completions);

 private:
  void Run();

  std::mutex mu_;
  std::condition_variable changed_;
  std::vector<Completion> queue_;  // guarded by mu_
  bool stopping_ = false;          // guarded by mu_
  std::thread thread_;             // last: it uses the others
};

}  // namespace tf_smddp

#endif  // TF_SMDDP_KERNELS_ENGINE_CORE_COMPLETION_THREAD_H_

// Watcher: a thread that notices at once when another rank's process ends, and ends the job for all.
#ifndef TF_SMDDP_KERNELS_ENGINE_WATCHER_H_
#define TF_SMDDP_KERNELS_ENGINE_WATCHER_H_

#include <thread>

#include "kernels/common/status.h"
#include "kernels/common/unique_fd.h"
#include "kernels/engine/job.h"

namespace tf_smddp {

class Watcher {
 public:
  // `job` outlives it.
  explicit Watcher(Job* job) : job_(job) {}
  ~Watcher();

  // Starts the thread. It sleeps in epoll over the peers' pidfds; it never polls. Errors: Internal when
  // descriptors have run out.
  Status Start();

 private:
  void Run();

  Job* const job_;
  UniqueFd epoll_;
  UniqueFd stop_;  // an eventfd
  std::thread thread_;
};

}  // namespace tf_smddp

#endif  // TF_SMDDP_KERNELS_ENGINE_WATCHER_H_

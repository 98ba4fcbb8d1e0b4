// CommunicatorHandle: reaches a communicator from threads that are not the engine's, and may come after its
// end: those that end copies of buffers (buffer.h).
#ifndef TF_SMDDP_KERNELS_ENGINE_COMMUNICATOR_HANDLE_H_
#define TF_SMDDP_KERNELS_ENGINE_COMMUNICATOR_HANDLE_H_

#include <mutex>

#include "kernels/engine/communicator.h"

namespace tf_smddp {

class CommunicatorHandle {
 public:
  explicit CommunicatorHandle(Communicator* communicator) : communicator_(communicator) {}

  // Calls `body` with the communicator, or does nothing after its end. `body` returns quickly. Any thread.
  template <typename Body>
  void Call(Body body) {
    std::lock_guard<std::mutex> lock(mu_);
    if (communicator_ != nullptr) body(communicator_);
  }

  // The communicator ends. No `body` runs when this returns, or later.
  void End() {
    std::lock_guard<std::mutex> lock(mu_);
    communicator_ = nullptr;
  }

 private:
  std::mutex mu_;
  Communicator* communicator_;  // guarded by mu_
};

}  // namespace tf_smddp

#endif  // TF_SMDDP_KERNELS_ENGINE_COMMUNICATOR_HANDLE_H_

// Writes: what our streams have still to write to the outputs of one op, or to read of its inputs. After a
// failure, too, its tensors live until that has ended.
#ifndef TF_SMDDP_KERNELS_CUDA_WRITES_H_
#define TF_SMDDP_KERNELS_CUDA_WRITES_H_

#include <functional>
#include <mutex>
#include <utility>

#include "kernels/common/status.h"

namespace tf_smddp::cuda {

// All methods: any thread.
class Writes {
 public:
  using Ended = std::function<void(const Status&)>;

  // One more is on a stream, or about to be.
  void Begin() {
    std::lock_guard<std::mutex> lock(mu_);
    ++under_way_;
  }

  // One of them has ended: the memory holds what was to be written there, or an error says why not.
  void End(const Status& status) {
    std::unique_lock<std::mutex> lock(mu_);
    if (status_.ok()) status_ = status;
    if (--under_way_ > 0 || ended_ == nullptr) return;
    const Ended ended = std::move(ended_);
    ended_ = nullptr;
    lock.unlock();
    ended(status_);
  }

  bool under_way() {
    std::lock_guard<std::mutex> lock(mu_);
    return under_way_ > 0;
  }

  // Calls `ended` with the first error when none is under way: in here, or in the End of the last one. Call
  // it once, when none will begin any more.
  void WhenEnded(Ended ended) {
    {
      std::lock_guard<std::mutex> lock(mu_);
      if (under_way_ > 0) {
        ended_ = std::move(ended);
        return;
      }
    }
    ended(status_);
  }

 private:
  std::mutex mu_;
  int under_way_ = 0;  // guarded by mu_, as are the others
  Status status_;
  Ended ended_;
};

}  // namespace tf_smddp::cuda

#endif  // TF_SMDDP_KERNELS_CUDA_WRITES_H_

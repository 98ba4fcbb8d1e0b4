// DeviceUses: the tensors on a GPU that a batch uses on a stream of ours.
//
// Place in the stack: below nccl_transfer.h. An order (kernels/cuda/device.h) says when a tensor may be
// used, and is told in its `writes` when it is not used any more.
#ifndef TF_SMDDP_KERNELS_COLLECTIVES_BACKENDS_NCCL_DEVICE_USES_H_
#define TF_SMDDP_KERNELS_COLLECTIVES_BACKENDS_NCCL_DEVICE_USES_H_

#include <memory>
#include <vector>

#include "kernels/collectives/transfer.h"
#include "kernels/common/status.h"
#include "kernels/cuda/device.h"

namespace tf_smddp {

class DeviceUses {
 public:
  // Lets `stream` wait for what computes the request's tensors, and notes their use.
  Status Begin(const ResolvedRequest& request, cuda::OwnStream* stream);

  // Ends all uses, with the outcome of what wrote to the tensors. Any thread.
  void End(const Status& outcome) const;

  bool empty() const { return writes_.empty(); }

 private:
  cuda::Event last_;  // that the stream was told to wait for
  std::vector<std::shared_ptr<cuda::Writes>> writes_;
  std::vector<std::shared_ptr<void>> owners_;
};

}  // namespace tf_smddp

#endif  // TF_SMDDP_KERNELS_COLLECTIVES_BACKENDS_NCCL_DEVICE_USES_H_

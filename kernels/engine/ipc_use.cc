#include "kernels/engine/ipc_use.h"

#include "kernels/collectives/backends/ipc/ipc_transfer.h"

namespace tf_smddp {

bool IpcUse::Keeps(const Request& request) {
  Communicator* const communicator = state_->communicator;
  cuda::Device* const device = GpuOf(request);
  if (device == nullptr || !communicator->config().gpu_ipc || communicator->wired()) return false;
  LocalGroup* const group = state_->group;
  const MemberMask active(group->segment().active().load(std::memory_order_seq_cst));
  return active == MemberMask::FirstN(group->size()) && group->size() <= ipc::kMostRanks &&
         state_->gpus.AllUse(*device) && ipc::Supports(request.operation) &&
         state_->gpu_windows.Ready(device);
}

}  // namespace tf_smddp

// IpcUse: decides which requests keep their tensors on a GPU that the ranks share, for IpcTransfer.
//
// Place in the stack: beside nccl_use.h, which decides where each rank has a GPU of its own. Each rank
// decides for its own tensors here, too.
#ifndef TF_SMDDP_KERNELS_ENGINE_IPC_USE_H_
#define TF_SMDDP_KERNELS_ENGINE_IPC_USE_H_

#include "kernels/engine/member_state.h"
#include "kernels/engine/request.h"

namespace tf_smddp {

class IpcUse {
 public:
  // It outlives this.
  explicit IpcUse(MemberState* state) : state_(state) {}

  // Whether this rank keeps the tensors of `request` on their GPU. The first requests with tensors on a GPU
  // make the windows; they are staged through the host. Any thread.
  bool Keeps(const Request& request);

  // Whether all members reach the windows of all. The same on all ranks, once each of them has kept a
  // request. Any thread.
  static bool AllShareOne(LocalGroup* group) { return group->segment().ipc_board().AllReady(group->size()); }

 private:
  MemberState* const state_;
};

}  // namespace tf_smddp

#endif  // TF_SMDDP_KERNELS_ENGINE_IPC_USE_H_

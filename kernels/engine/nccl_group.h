// NcclGroup: the ranks that make NCCL's calls together, as NcclTransfer wants to know them.
//
// Place in the stack: below batch_runner.h. Between hosts it leads to the wire, and to the relay that orders
// the turns (Note [Turns between hosts] in kernels/collectives/backends/nccl/nccl_turns.h).
#ifndef TF_SMDDP_KERNELS_ENGINE_NCCL_GROUP_H_
#define TF_SMDDP_KERNELS_ENGINE_NCCL_GROUP_H_

#include "kernels/collectives/backends/nccl/nccl_transfer.h"
#include "kernels/engine/communicator.h"

namespace tf_smddp {

// A group of all members of the communicator, which outlives the group.
nccl::NcclTransfer::Group NcclGroup(Communicator* communicator);

}  // namespace tf_smddp

#endif  // TF_SMDDP_KERNELS_ENGINE_NCCL_GROUP_H_

// Checks of the ranks of a communicator, and the errors about communicators that both engines give.
//
// Place in the stack: the bottom of engine/.
#ifndef TF_SMDDP_KERNELS_ENGINE_JOB_COMMUNICATOR_CHECKS_H_
#define TF_SMDDP_KERNELS_ENGINE_JOB_COMMUNICATOR_CHECKS_H_

#include <cstdint>
#include <vector>

#include "kernels/common/status.h"
#include "kernels/engine/request.h"

namespace tf_smddp {

// Errors: InvalidArgument when `ranks`, in ascending order, is empty, names a rank that a job of `size` ranks
// does not have, or names one twice.
Status CheckRanks(const std::vector<int>& ranks, int size);

// Errors: InvalidArgument when `key` is not below kFirstOfMembers.
Status CheckKey(std::uint64_t key);

Status NoSuchCommunicator(CommunicatorId id);
Status KeyWasUsed(std::uint64_t key, int rank);
Status CannotRemoveWorld();
Status NoRoomForCommunicator(int capacity);

}  // namespace tf_smddp

#endif  // TF_SMDDP_KERNELS_ENGINE_JOB_COMMUNICATOR_CHECKS_H_

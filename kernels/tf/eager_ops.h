// EagerOps: counts, by communicator, the eager ops of whose end the engine knows: collectives whose kernels
// have begun.
//
// On a GPU, TensorFlow may fail an eager op by itself: when an input cannot be copied, and when an eager op
// of another thread fails, since all of them share a rendezvous. If that is before a collective has begun, or
// behind its ticket, the other ranks would wait for it. The Python package finds this by the counts, and
// tells them.
#ifndef TF_SMDDP_KERNELS_TF_EAGER_OPS_H_
#define TF_SMDDP_KERNELS_TF_EAGER_OPS_H_

#include <cstdint>

#include "kernels/engine/request.h"

namespace tf_smddp {

// Counts one more. Any thread.
void CountEagerOp(CommunicatorId communicator);

// How many there were so far. Any thread.
std::uint64_t EagerOps(CommunicatorId communicator);

}  // namespace tf_smddp

#endif  // TF_SMDDP_KERNELS_TF_EAGER_OPS_H_

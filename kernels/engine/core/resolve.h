// Resolve: finds who takes part in a ready request, how much each brings, and where it lies.
//
// Place in the stack: between the readiness table's cells, which peers write, and kernels/collectives. A
// value in shared memory is read once, in here, and checked before it is used as an address or a length.
#ifndef TF_SMDDP_KERNELS_ENGINE_CORE_RESOLVE_H_
#define TF_SMDDP_KERNELS_ENGINE_CORE_RESOLVE_H_

#include <cstdint>

#include "kernels/collectives/resolved_request.h"
#include "kernels/common/status.h"
#include "kernels/engine/core/pending.h"
#include "kernels/engine/job/communicator.h"
#include "kernels/engine/request.h"

namespace tf_smddp {

// The part of a Call that follows from the request alone: all but the participants and other ranks' cells.
Call CallOf(const Request& request);

// A tensor is reduced in place or elsewhere, never over a part of itself.
bool OverlapInPart(const void* input, const void* output, std::uint64_t bytes);

// Fills *resolved for a request that is ready. Errors: FailedPrecondition when a rank that it needs has left
// the communicator; Internal when shared memory is corrupt. Any thread, between readiness and this rank's
// Acknowledge.
Status Resolve(Communicator* communicator, const PendingRequest& pending, ResolvedRequest* resolved);

}  // namespace tf_smddp

#endif  // TF_SMDDP_KERNELS_ENGINE_CORE_RESOLVE_H_

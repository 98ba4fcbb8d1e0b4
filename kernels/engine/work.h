// Work: a ready request as the data plane needs it: who takes part, how much, and where it lies.
//
// Place in the stack: between the readiness table's cells, which peers write, and kernels/collectives. All
// that is read from shared memory is read once, in here, and checked before it is used as an address or a
// length.
#ifndef TF_SMDDP_KERNELS_ENGINE_WORK_H_
#define TF_SMDDP_KERNELS_ENGINE_WORK_H_

#include <cstdint>
#include <vector>

#include "kernels/collectives/collective.h"
#include "kernels/common/status.h"
#include "kernels/engine/communicator.h"
#include "kernels/engine/pending.h"
#include "kernels/engine/request.h"

namespace tf_smddp {

struct Work {
  const Collective* collective = nullptr;
  Call call;
  std::uint64_t participants = 0;  // bits of members
  int rank = 0;                    // this rank's number among them
  bool reachable = false;          // Direct can run: what it reads and writes of other ranks lies in arenas
  // All by number among the participants. `members`: of the communicator. The others are nullptr where it is
  // private, or has no bytes; with Reach::kOwnOutput only this rank's output counts.
  std::vector<int> members;
  std::vector<const void*> inputs;
  std::vector<void*> outputs;
};

// What of a Call follows from the request alone: all but who takes part, and what lies in other ranks' cells.
Call CallOf(const Request& request);

// A tensor is reduced in place or elsewhere, never over a part of itself.
bool OverlapInPart(const void* input, const void* output, std::uint64_t bytes);

// Fills *work for a request that is ready. Errors: FailedPrecondition when a rank that it needs has left the
// communicator; Internal when shared memory is damaged. Any thread, between readiness and this rank's
// Acknowledge.
Status PrepareWork(Communicator* communicator, const PendingRequest& pending, Work* work);

}  // namespace tf_smddp

#endif  // TF_SMDDP_KERNELS_ENGINE_WORK_H_

// ResolvedRequest: a ready request as the data plane needs it: who takes part, how much, and where it lies.
//
// Place in the stack: the engine makes it (kernels/engine/resolve.h), a Transfer moves it.
#ifndef TF_SMDDP_KERNELS_COLLECTIVES_RESOLVED_REQUEST_H_
#define TF_SMDDP_KERNELS_COLLECTIVES_RESOLVED_REQUEST_H_

#include <cstdint>
#include <vector>

#include "kernels/collectives/collective.h"

namespace tf_smddp {

struct ResolvedRequest {
  const Collective* collective = nullptr;
  Call call;
  std::uint64_t participants = 0;  // bits of members
  int rank = 0;                    // this rank's number among the participants
  bool reachable = false;          // Direct can run: what it reads and writes of other ranks lies in arenas
  // All by number among the participants. `members`: of the communicator. The addresses of other ranks'
  // tensors are nullptr where the memory is private, or has no bytes; with Reach::kOwnOutput only this rank's
  // output counts.
  std::vector<int> members;
  std::vector<const void*> inputs;
  std::vector<void*> outputs;

  bool all_outputs() const { return collective->reach() == Collective::Reach::kAllOutputs; }
};

}  // namespace tf_smddp

#endif  // TF_SMDDP_KERNELS_COLLECTIVES_RESOLVED_REQUEST_H_

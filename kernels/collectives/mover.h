// Mover: what a step of the staged path does to memory: at once on the host, in a launch on a GPU.
//
// Place in the stack: below collective.h. A backend has one for the memory that it stages in.
#ifndef TF_SMDDP_KERNELS_COLLECTIVES_MOVER_H_
#define TF_SMDDP_KERNELS_COLLECTIVES_MOVER_H_

#include <cstdint>

#include "kernels/common/operation.h"

namespace tf_smddp {

// One step's copies and reductions may run in any order: none reads what another writes.
class Mover {
 public:
  virtual ~Mover() = default;

  virtual void Copy(void* to, const void* from, std::uint64_t bytes) = 0;

  // Makes `count` elements of each output, as Reduce does (kernels/reduce/reduce.h); the operation says how.
  virtual void Reduce(const Operation& operation, const void* const* inputs, int num_inputs,
                      void* const* outputs, int num_outputs, std::uint64_t count) = 0;
};

}  // namespace tf_smddp

#endif  // TF_SMDDP_KERNELS_COLLECTIVES_MOVER_H_

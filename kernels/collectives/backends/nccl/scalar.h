// ScalarOf: a factor as NCCL takes it, rounded to the type of the elements that it multiplies. It is pure.
#ifndef TF_SMDDP_KERNELS_COLLECTIVES_BACKENDS_NCCL_SCALAR_H_
#define TF_SMDDP_KERNELS_COLLECTIVES_BACKENDS_NCCL_SCALAR_H_

#include <cstdint>

#include "kernels/collectives/backends/nccl/nccl_library.h"

namespace tf_smddp::nccl {

// Sets the first bytes of *bits to `value`, rounded to nearest even. Returns false, and leaves *bits alone,
// if it is neither zero nor a normal number there, so that rounding would take more than the last place; and
// for integers.
bool ScalarOf(DataType type, double value, std::uint64_t* bits);

}  // namespace tf_smddp::nccl

#endif  // TF_SMDDP_KERNELS_COLLECTIVES_BACKENDS_NCCL_SCALAR_H_

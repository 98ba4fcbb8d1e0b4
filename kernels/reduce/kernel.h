// What a kernel is: one function for one element type, operation and instruction set.
//
// Place in the stack: internal to kernels/reduce. Not here: how a kernel is found (targets.h).
#ifndef TF_SMDDP_KERNELS_REDUCE_KERNEL_H_
#define TF_SMDDP_KERNELS_REDUCE_KERNEL_H_

#include <cstddef>

#include "kernels/common/types.h"

namespace tf_smddp {

// As in Reduce (reduce.h); num_inputs is at least 2, because one input is a copy.
struct KernelArgs {
  const void* const* inputs;
  int num_inputs;
  void* const* outputs;
  int num_outputs;
  std::size_t count;
  int divisor;  // the result is divided by this: num_inputs for kAverage, else 1
};

using Kernel = void (*)(const KernelArgs& args);

// Returns the kernel, or null where the file that defines it does not handle the pair.
using FindKernel = Kernel (*)(DType dtype, ReduceOp op);

// Each is an array indexed by TargetId; a null entry is a target that is not compiled.
extern const FindKernel kFindFloatKernel[];    // float32, float64
extern const FindKernel kFindHalfKernel[];     // float16, bfloat16
extern const FindKernel kFindIntegerKernel[];  // int32, int64 (not kAverage), uint8, bool

}  // namespace tf_smddp

#endif  // TF_SMDDP_KERNELS_REDUCE_KERNEL_H_

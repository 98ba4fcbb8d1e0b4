// Kernel: a function that reduces elements of one type, with one operation, on one instruction set.
//
// Place in the stack: internal to kernels/reduce. Not here: which of the machine's instruction sets is used
// (targets.h).
#ifndef TF_SMDDP_KERNELS_REDUCE_KERNEL_H_
#define TF_SMDDP_KERNELS_REDUCE_KERNEL_H_

#include <cstddef>

#include "kernels/common/types.h"

namespace tf_smddp {

// The instruction sets that a kernel file may be compiled for, best first within one architecture.
enum TargetId { kAvx3, kAvx2, kSse4, kNeon, kFallback, kNumTargets };

// The factors are cast to the accumulator's type before use. Integer kernels use the divisor only.
struct Factors {
  double prescale;   // each input is multiplied by it
  int divisor;       // the combined value is divided by this: num_inputs for kAverage, else 1
  double postscale;  // the quotient is multiplied by it
};

// The arguments of Reduce (reduce.h). Integer kernels get at least 2 inputs, because a reduction of one is a
// copy.
struct KernelArgs {
  const void* const* inputs;
  int num_inputs;
  void* const* outputs;
  int num_outputs;
  std::size_t count;
  Factors factors;
  bool past_cache;  // the outputs, aligned to 64 bytes and none of them an input, are written past the cache
};

using Kernel = void (*)(const KernelArgs& args);

// Returns the kernel, or null where the file that defines it does not handle the pair.
using FindKernel = Kernel (*)(DType dtype, ReduceOp op);

// Each file of kernels has one of these arrays, which the last column of dtype_table.h names. They are
// indexed by TargetId; the entry of a target that is not compiled is null.
extern const FindKernel kFindFloatKernel[];          // float32, float64
extern const FindKernel kFindHalfKernel[];           // float16, bfloat16
extern const FindKernel kFindIntegerKernel[];        // integers of 32 and 64 bits
extern const FindKernel kFindNarrowIntegerKernel[];  // integers of 8 and 16 bits, bool
extern const FindKernel kFindComplexKernel[];        // complex64, complex128

}  // namespace tf_smddp

#endif  // TF_SMDDP_KERNELS_REDUCE_KERNEL_H_

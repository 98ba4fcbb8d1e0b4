// The int64 average: sums of 64-bit integers need more than 64 bits, which no vector instruction set has.
#ifndef TF_SMDDP_KERNELS_REDUCE_INT64_AVERAGE_H_
#define TF_SMDDP_KERNELS_REDUCE_INT64_AVERAGE_H_

#include "kernels/reduce/kernel.h"

namespace tf_smddp {

// A Kernel for every target: the 128-bit sum, divided by args.divisor, truncated toward zero.
void Int64Average(const KernelArgs& args);

}  // namespace tf_smddp

#endif  // TF_SMDDP_KERNELS_REDUCE_INT64_AVERAGE_H_

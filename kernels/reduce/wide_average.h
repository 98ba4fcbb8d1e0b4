// The average of 64-bit integers: their sums need more than 64 bits, which no vector instruction set has.
#ifndef TF_SMDDP_KERNELS_REDUCE_WIDE_AVERAGE_H_
#define TF_SMDDP_KERNELS_REDUCE_WIDE_AVERAGE_H_

#include "kernels/reduce/kernel.h"

namespace tf_smddp {

// A Kernel for every target: it takes the 128-bit sum, divided by args.factors.divisor, truncated toward
// zero. T is std::int64_t or std::uint64_t.
template <typename T>
void WideAverage(const KernelArgs& args);

}  // namespace tf_smddp

#endif  // TF_SMDDP_KERNELS_REDUCE_WIDE_AVERAGE_H_

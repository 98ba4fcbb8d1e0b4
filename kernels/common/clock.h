// Clock: the clock of all measurements, waits and deadlines. It is steady, and the processes of a host share
// it.
//
// Place in the stack: the bottom.
#ifndef TF_SMDDP_KERNELS_COMMON_CLOCK_H_
#define TF_SMDDP_KERNELS_COMMON_CLOCK_H_

#include <chrono>

namespace tf_smddp {

using Clock = std::chrono::steady_clock;

}  // namespace tf_smddp

#endif  // TF_SMDDP_KERNELS_COMMON_CLOCK_H_

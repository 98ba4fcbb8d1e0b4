// The product of complex numbers.
#ifndef TF_SMDDP_KERNELS_REDUCE_COMPLEX_PRODUCT_H_
#define TF_SMDDP_KERNELS_REDUCE_COMPLEX_PRODUCT_H_

#include "kernels/reduce/kernel.h"

namespace tf_smddp {

// A Kernel for every target, as reduce.h defines it. T is the type of the parts, float or double.
//
// It has no vector code: few users need it, and without vectors it is still about as fast as memory.
template <typename T>
void ComplexProduct(const KernelArgs& args);

}  // namespace tf_smddp

#endif  // TF_SMDDP_KERNELS_REDUCE_COMPLEX_PRODUCT_H_

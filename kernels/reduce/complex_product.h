// The product of complex numbers.
#ifndef TF_SMDDP_KERNELS_REDUCE_COMPLEX_PRODUCT_H_
#define TF_SMDDP_KERNELS_REDUCE_COMPLEX_PRODUCT_H_

#include "kernels/reduce/kernel.h"

namespace tf_smddp {

// A Kernel for every target, as reduce.h defines it. T is the type of the parts, float or double.
//
// Why no vectors: it is compiled without them, and still about as fast as memory, and hardly anybody needs
// it.
template <typename T>
void ComplexProduct(const KernelArgs& args);

}  // namespace tf_smddp

#endif  // TF_SMDDP_KERNELS_REDUCE_COMPLEX_PRODUCT_H_

// Conversions of float32 to float16 or bfloat16, and back: for what crosses the network in half the bytes.
//
// Place in the stack: beside reduce.h; above common/ only.
#ifndef TF_SMDDP_KERNELS_REDUCE_CONVERT_H_
#define TF_SMDDP_KERNELS_REDUCE_CONVERT_H_

#include <cstddef>
#include <cstdint>

#include "kernels/common/types.h"

namespace tf_smddp {

// Converts `count` elements to the type `half`, which is kFloat16 or kBFloat16. Rounds to nearest even; what
// is beyond the largest value becomes infinity, and a NaN the positive quiet NaN. The bits are the same
// whatever the alignment, the count and the instruction set. The ranges do not overlap. Any thread.
void FloatsToHalves(DType half, const float* from, std::uint16_t* to, std::size_t count);

// Converts them back, which is exact. As above.
void HalvesToFloats(DType half, const std::uint16_t* from, float* to, std::size_t count);

}  // namespace tf_smddp

#endif  // TF_SMDDP_KERNELS_REDUCE_CONVERT_H_

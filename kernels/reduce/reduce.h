// Element kernels: combine N inputs into M outputs in one pass over memory.
//
// Place in the stack: above common/ only. Plain memory in, plain memory out: no threads, no ranks, no
// shared state. Not here: which elements a caller reduces, and when (kernels/collectives).
#ifndef TF_SMDDP_KERNELS_REDUCE_REDUCE_H_
#define TF_SMDDP_KERNELS_REDUCE_REDUCE_H_

#include <cstddef>

#include "kernels/common/types.h"

namespace tf_smddp {

// Semantics: for every element e in [0, count): r = inputs[0][e] op inputs[1][e] op … in index order, and
// outputs[k][e] = r for every k. kAverage is the sum divided by num_inputs.
//   * float16 and bfloat16 accumulate in float32 and are rounded once, to nearest even, at the end.
//   * float32 and float64 accumulate in their own type, in index order: bitwise the same result whatever
//     the alignment, the count, the target instruction set, or how callers cut a tensor into ranges.
//   * integer kSum and kProduct wrap; integer kAverage is the truncated quotient of the exact sum.
//   * kMin and kMax propagate NaN; of equal zeros the first counts. bool has kMin (and) and kMax (or) only;
//     its bytes are 0 or 1.
//   * Every NaN in a result is the positive quiet NaN without payload. Which payload arithmetic hands on is
//     the compiler's choice, so no other rule gives the same bits everywhere.
//   * Subnormals are kept and rounding is to nearest even, whatever the calling thread has set (TensorFlow's
//     threads flush subnormals to zero, ours don't).
//   * With one input the outputs are copies of it, bit for bit, whatever the operation.
// Units and shapes: `count` in elements; 1 <= num_inputs <= 64; 1 <= num_outputs <= 64. Pointers need only
// the element type's natural alignment. count may be 0.
// Aliasing: an output may be exactly the same pointer as any input (element e is read from all inputs before
// it is written to any output); partial overlap is not allowed.
// Errors: none; the caller has checked ReduceOpDefined(dtype, op).
// Thread-safety: any thread; calls on disjoint ranges may run at once.
void Reduce(DType dtype, ReduceOp op, const void* const* inputs, int num_inputs, void* const* outputs,
            int num_outputs, std::size_t count);

// Name of the instruction set that Reduce picked here ("AVX3", "AVX2", …), for logs and benchmarks.
const char* ReduceTarget();

}  // namespace tf_smddp

#endif  // TF_SMDDP_KERNELS_REDUCE_REDUCE_H_

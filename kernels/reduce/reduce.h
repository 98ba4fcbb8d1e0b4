// Reduce: combines N inputs into M outputs in one pass over memory.
//
// Place in the stack: above common/ only. It reads and writes plain memory, and has no threads, ranks or
// shared state. Not here: which elements a caller reduces, and when (kernels/collectives).
#ifndef TF_SMDDP_KERNELS_REDUCE_REDUCE_H_
#define TF_SMDDP_KERNELS_REDUCE_REDUCE_H_

#include <cstddef>

#include "kernels/common/types.h"

namespace tf_smddp {

// Says how elements are combined. Only inexact types (IsInexact) have factors; for others they are 1.
struct Reduction {
  DType dtype;
  ReduceOp op;
  double prescale = 1.0;
  double postscale = 1.0;
  // The outputs are so large that they will have left the cache when they are read. They are then written
  // past the cache, without being read first, if the type is a floating-point type, all outputs are aligned
  // to 64 bytes, and no output is an input. The bits are the same either way.
  bool past_cache = false;
  int divisor = 0;  // what kAverage divides by; 0 for the number of inputs. For inexact types
};

// Semantics: for every element e in [0, count): with x[i] = inputs[i][e] * prescale,
//   r = (x[0] op x[1] op …, in index order; for kAverage, the sum divided by num_inputs) * postscale
// and outputs[k][e] = r for every k.
//   * float16 and bfloat16 accumulate in float32 and are rounded once, to nearest even, at the end.
//   * float32 and float64 accumulate in their own type, in index order: the result is bitwise the same,
//   whatever
//     the alignment, the count, the target instruction set, or how callers cut a tensor into ranges.
//   * The parts of complex numbers are added, divided and scaled like floats. kProduct is, in index order,
//     (a + bi)(c + di) = (ac - bd) + (ad + bc)i, with each of the six operations rounded, and no special
//     rule for infinities: (inf + inf i)(1 + 0i) has a NaN in both parts, since inf * 0 is one.
//   * The factors are cast to the type that accumulates (float for complex64), and each multiplication is
//     rounded in it. A factor of 1 changes no bit.
//   * Integer kSum and kProduct wrap; integer kAverage is the truncated quotient of the exact sum.
//   * kMin and kMax propagate NaN; of zeros of both signs the first is taken. bool has kMin (and) and kMax
//   (or) only;
//     its bytes are 0 or 1. Complex numbers have neither.
//   * Every NaN in a result, or in a part of one, is the positive quiet NaN without payload. The payload
//     that arithmetic propagates is the compiler's choice, so no other rule gives the same bits everywhere.
//   * Subnormals are kept and rounding is to nearest even, whatever the calling thread has set (TensorFlow's
//     threads flush subnormals to zero, ours don't).
//   * With one input and factors of 1 the outputs are copies of it, bit for bit, whatever the operation.
// Units and shapes: `count` is in elements; 1 <= num_inputs <= 16,384, but 256 for the
// average of integers of 16 bits; 1 <= num_outputs <= 64. Pointers need only
// the element type's natural alignment (of a part, for complex numbers). count may be 0.
// Aliasing: an output may be exactly the same pointer as any input (element e is read from all inputs before
// it is written to any output); partial overlap is not allowed.
// Errors: none; the caller has checked ReduceOpDefined(dtype, op), and the factors against IsInexact(dtype).
// Thread-safety: any thread; calls on disjoint ranges may run at once.
void Reduce(const Reduction& reduction, const void* const* inputs, int num_inputs, void* const* outputs,
            int num_outputs, std::size_t count);

// Returns the name of the instruction set that Reduce chose on this machine ("AVX3", "AVX2", …), for logs and
// benchmarks.
const char* ReduceTarget();

}  // namespace tf_smddp

#endif  // TF_SMDDP_KERNELS_REDUCE_REDUCE_H_

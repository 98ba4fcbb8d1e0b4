// The arithmetic of reductions, on memory of the host.
#ifndef TF_SMDDP_TESTS_PRETEND_GPU_NCCL_REDUCE_H_
#define TF_SMDDP_TESTS_PRETEND_GPU_NCCL_REDUCE_H_

#include <array>
#include <cstddef>

namespace pretend_gpu::nccl {

// A value of any type.
using Scalar = std::array<char, 8>;

// All functions: `count` elements of the type. Floating-point results are rounded to the type at each step;
// integers wrap around. Any thread.

// data[i] *= scalar.
void Scale(int type, void* data, std::size_t count, const Scalar& scalar);

// total[i] = total[i] op operand[i]; `op` is ncclSum, ncclProd, ncclMax or ncclMin. The largest and the
// smallest of a not-a-number and anything is not-a-number, so that poison is never lost.
void Combine(int type, int op, void* total, const void* operand, std::size_t count);

// data[i] /= ranks, towards zero; for types of integers.
void Divide(int type, void* data, std::size_t count, int ranks);

// Returns 1 / ranks; for floating-point types.
Scalar Reciprocal(int type, int ranks);

}  // namespace pretend_gpu::nccl

#endif  // TF_SMDDP_TESTS_PRETEND_GPU_NCCL_REDUCE_H_

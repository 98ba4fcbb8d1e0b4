// ReduceTable: the argument of the kernels that reduce (reductions.cu). C++ and CUDA C++ include it, so it
// includes nothing.
#ifndef TF_SMDDP_KERNELS_CUDA_REDUCE_TABLE_H_
#define TF_SMDDP_KERNELS_CUDA_REDUCE_TABLE_H_

namespace tf_smddp::cuda {

constexpr int kMostReduceInputs = 8;
constexpr int kMostReduceOutputs = 2;

enum class RowOp : int { kAdd, kMin, kMax, kMultiply };

struct ReduceRow {
  const void* inputs[kMostReduceInputs];
  void* outputs[kMostReduceOutputs];
  unsigned long long count;  // of elements
  double prescale;           // of each input
  double postscale;          // of the result
  int divisor;               // of the result, before that
  RowOp op;
  int num_inputs;
  int num_outputs;
};

// A kernel's arguments have 4 KiB.
struct ReduceTable {
  static constexpr int kRows = 32;
  ReduceRow rows[kRows];
};
static_assert(sizeof(ReduceTable) <= 4096, "a kernel has no more arguments");

constexpr unsigned kReduceThreads = 256;          // of a block
constexpr unsigned long long kReduceTile = 4096;  // elements that a block reduces

}  // namespace tf_smddp::cuda

#endif  // TF_SMDDP_KERNELS_CUDA_REDUCE_TABLE_H_

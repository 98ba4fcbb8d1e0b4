// The instruction sets for which Reduce is compiled and which this machine can run.
//
// Place in the stack: internal to kernels/reduce and its tests. All others call Reduce, which takes the best.
#ifndef TF_SMDDP_KERNELS_REDUCE_TARGETS_H_
#define TF_SMDDP_KERNELS_REDUCE_TARGETS_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/reduce/kernel.h"
#include "kernels/reduce/reduce.h"

namespace tf_smddp {

struct ReduceTargetInfo {
  const char* name;  // Highway's name: "AVX3" (AVX-512), "AVX2", "SSE4", "NEON", "SCALAR"
  TargetId id;
};

// Returns them, the best one first; there is always one. Each call asks the CPU. Any thread.
std::vector<ReduceTargetInfo> RunnableReduceTargets();

// Returns the best one, without asking again. Any thread.
const ReduceTargetInfo& BestReduceTarget();

// Does what Reduce (reduce.h) does, on the given target. Any thread.
void ReduceOn(const ReduceTargetInfo& target, const Reduction& reduction, const void* const* inputs,
              int num_inputs, void* const* outputs, int num_outputs, std::size_t count);

// Do what convert.h says, on the given target. Any thread.
void FloatsToHalvesOn(const ReduceTargetInfo& target, DType half, const float* from, std::uint16_t* to,
                      std::size_t count);
void HalvesToFloatsOn(const ReduceTargetInfo& target, DType half, const std::uint16_t* from, float* to,
                      std::size_t count);

}  // namespace tf_smddp

#endif  // TF_SMDDP_KERNELS_REDUCE_TARGETS_H_

#include "kernels/reduce/reduce.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "kernels/common/dtype_table.h"
#include "kernels/reduce/float_environment.h"
#include "kernels/reduce/targets.h"

namespace tf_smddp {
namespace {

// Pieces are so small that one that was read for the first output is still in the L1 cache for the next.
constexpr std::size_t kCopyBytes = 16 << 10;

// The bytes of the longest vector that is stored.
constexpr std::uintptr_t kStreamAlignment = 64;

// Handles one input without factors, of which every operation is the identity.
void Copy(const void* input, void* const* outputs, int num_outputs, std::size_t bytes) {
  const std::size_t piece_bytes = num_outputs == 1 ? bytes : kCopyBytes;
  for (std::size_t begin = 0; begin < bytes; begin += piece_bytes) {
    const std::size_t n = std::min(piece_bytes, bytes - begin);
    for (int k = 0; k < num_outputs; ++k) {
      if (outputs[k] == input) continue;
      std::memcpy(static_cast<char*>(outputs[k]) + begin, static_cast<const char*>(input) + begin, n);
    }
  }
}

bool CanStream(const void* const* inputs, int num_inputs, void* const* outputs, int num_outputs) {
  for (int k = 0; k < num_outputs; ++k) {
    if (reinterpret_cast<std::uintptr_t>(outputs[k]) % kStreamAlignment != 0) return false;
    if (std::find(inputs, inputs + num_inputs, outputs[k]) != inputs + num_inputs) return false;
  }
  return true;
}

// The kernels of each type, indexed by DType; each of them is an array indexed by TargetId.
constexpr const FindKernel* kKernels[] = {
#define TF_SMDDP_KERNELS(enumerator, name, tensorflow, data_type, bytes, arithmetic, kernels) \
  kFind##kernels##Kernel,
    TF_SMDDP_DTYPES(TF_SMDDP_KERNELS, )
#undef TF_SMDDP_KERNELS
};

}  // namespace

void ReduceOn(const ReduceTargetInfo& target, const Reduction& reduction, const void* const* inputs,
              int num_inputs, void* const* outputs, int num_outputs, std::size_t count) {
  const auto& [dtype, op, prescale, postscale, past_cache, given_divisor] = reduction;
  if (count == 0) return;
  const int divisor = op != ReduceOp::kAverage ? 1 : given_divisor != 0 ? given_divisor : num_inputs;
  if (num_inputs == 1 && divisor == 1 && prescale == 1.0 && postscale == 1.0) {
    return Copy(inputs[0], outputs, num_outputs, count * DTypeBytes(dtype));
  }
  const Factors factors = {prescale, divisor, postscale};
  const Kernel kernel = kKernels[static_cast<int>(dtype)][target.id](dtype, op);
  const ScopedIeeeEnvironment ieee;
  const bool streams = past_cache && CanStream(inputs, num_inputs, outputs, num_outputs);
  kernel({inputs, num_inputs, outputs, num_outputs, count, factors, streams});
}

void Reduce(const Reduction& reduction, const void* const* inputs, int num_inputs, void* const* outputs,
            int num_outputs, std::size_t count) {
  ReduceOn(BestReduceTarget(), reduction, inputs, num_inputs, outputs, num_outputs, count);
}

const char* ReduceTarget() { return BestReduceTarget().name; }

}  // namespace tf_smddp

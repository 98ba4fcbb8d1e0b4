#include "kernels/reduce/reduce.h"

#include <algorithm>
#include <cstring>

#include "kernels/reduce/float_environment.h"
#include "kernels/reduce/int64_average.h"
#include "kernels/reduce/targets.h"

namespace tf_smddp {
namespace {

// Small enough that a piece that was read for the first output is still in the L1 cache for the next.
constexpr std::size_t kCopyBytes = 16 << 10;

// One input: every operation is the identity.
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

Kernel Find(const ReduceTargetInfo& target, DType dtype, ReduceOp op) {
  switch (dtype) {
    case DType::kFloat16:
    case DType::kBFloat16:
      return target.find_half(dtype, op);
    case DType::kFloat32:
    case DType::kFloat64:
      return target.find_float(dtype, op);
    case DType::kInt64:
      if (op == ReduceOp::kAverage) return &Int64Average;
      return target.find_integer(dtype, op);
    case DType::kInt32:
    case DType::kUInt8:
    case DType::kBool:
      return target.find_integer(dtype, op);
  }
  return nullptr;
}

// The choice cannot change while the process runs, so it is made once.
const ReduceTargetInfo& BestTarget() {
  static const ReduceTargetInfo best = RunnableReduceTargets().front();
  return best;
}

}  // namespace

void ReduceOn(const ReduceTargetInfo& target, DType dtype, ReduceOp op, const void* const* inputs,
              int num_inputs, void* const* outputs, int num_outputs, std::size_t count) {
  if (count == 0) return;
  if (num_inputs == 1) return Copy(inputs[0], outputs, num_outputs, count * DTypeBytes(dtype));
  const int divisor = op == ReduceOp::kAverage ? num_inputs : 1;
  const ScopedIeeeEnvironment ieee;
  Find(target, dtype, op)({inputs, num_inputs, outputs, num_outputs, count, divisor});
}

void Reduce(DType dtype, ReduceOp op, const void* const* inputs, int num_inputs, void* const* outputs,
            int num_outputs, std::size_t count) {
  ReduceOn(BestTarget(), dtype, op, inputs, num_inputs, outputs, num_outputs, count);
}

const char* ReduceTarget() { return BestTarget().name; }

}  // namespace tf_smddp

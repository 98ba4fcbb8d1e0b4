#include "kernels/collectives/host_reduction.h"

#include <algorithm>
#include <cstring>

#include "kernels/reduce/convert.h"
#include "kernels/reduce/reduce.h"

namespace tf_smddp {
namespace {

bool IsBroadcast(const Operation& operation) { return operation.kind == CollectiveKind::kBroadcast; }

bool IsCompressed(const Operation& operation) { return TypeOnWire(operation) != operation.dtype; }

// Reduces float32 into 16 bits of `type`, in blocks that stay in the L1 cache.
void ReduceCompressed(const Reduction& reduction, const void** inputs, int num_inputs, DType type, void* to,
                      std::uint64_t count) {
  constexpr std::uint64_t kBlock = 2048;
  alignas(64) float reduced[kBlock];
  void* const output = reduced;
  auto* halves = static_cast<std::uint16_t*>(to);
  for (std::uint64_t begin = 0; begin < count; begin += kBlock) {
    const std::uint64_t block = std::min(kBlock, count - begin);
    Reduce(reduction, inputs, num_inputs, &output, 1, block);
    FloatsToHalves(type, reduced, halves + begin, block);
    for (int i = 0; i < num_inputs; ++i) inputs[i] = static_cast<const float*>(inputs[i]) + block;
  }
}

// How partial results are combined. `count` becomes that of what is added: of a broadcast, bytes.
Reduction OfPartials(const Operation& operation, int num_ranks, std::uint64_t* count) {
  if (IsBroadcast(operation)) {
    *count *= DTypeBytes(operation.dtype);
    return {DType::kUInt8, ReduceOp::kSum};
  }
  if (IsCompressed(operation)) return {TypeOnWire(operation), ReduceOp::kSum};
  return {operation.dtype, operation.op, 1.0, operation.postscale, /*past_cache=*/false, num_ranks};
}

}  // namespace

bool HasPartialResults(const Operation& operation) {
  return operation.op != ReduceOp::kAverage || IsInexact(operation.dtype);
}

bool ReducesByHosts(const Operation& operation) {
  return IsBroadcast(operation) ||
         (operation.kind == CollectiveKind::kAllreduce && HasPartialResults(operation));
}

DType TypeOnWire(const Operation& operation) {
  const bool adds = operation.op == ReduceOp::kSum || operation.op == ReduceOp::kAverage;
  if (IsBroadcast(operation) || operation.dtype != DType::kFloat32 || !adds) return operation.dtype;
  switch (operation.compression) {
    case Compression::kNone:
      return operation.dtype;
    case Compression::kFloat16:
      return DType::kFloat16;
    case Compression::kBFloat16:
      return DType::kBFloat16;
  }
  __builtin_unreachable();
}

bool IsPartialResult(const Operation& operation) {
  return IsBroadcast(operation) || (!IsCompressed(operation) && operation.prescale == 1.0);
}

void ReduceOnHost(const Operation& operation, int num_ranks, const void** inputs, int num_inputs,
                  void* partial, std::uint64_t count) {
  if (IsBroadcast(operation)) {
    const std::uint64_t bytes = count * DTypeBytes(operation.dtype);
    num_inputs > 0 ? std::memcpy(partial, inputs[0], bytes) : std::memset(partial, 0, bytes);
    return;
  }
  if (IsCompressed(operation)) {
    return ReduceCompressed({operation.dtype, operation.op, operation.prescale, operation.postscale,
                             /*past_cache=*/false, num_ranks},
                            inputs, num_inputs, TypeOnWire(operation), partial, count);
  }
  const ReduceOp op = operation.op == ReduceOp::kAverage ? ReduceOp::kSum : operation.op;
  Reduce({operation.dtype, op, operation.prescale}, inputs, num_inputs, &partial, 1, count);
}

void ReducePartials(const Operation& operation, int num_ranks, const void* const* partials, int num_partials,
                    void* result, std::uint64_t count) {
  const Reduction reduction = OfPartials(operation, num_ranks, &count);
  Reduce(reduction, partials, num_partials, &result, 1, count);
}

void AddPartials(const Operation& operation, const void* const* partials, int num_partials, void* result,
                 std::uint64_t count) {
  Reduction reduction = OfPartials(operation, /*num_ranks=*/1, &count);
  if (reduction.op == ReduceOp::kAverage) reduction.op = ReduceOp::kSum;
  reduction.postscale = 1.0;
  Reduce(reduction, partials, num_partials, &result, 1, count);
}

void WriteReduced(const Operation& operation, int num_ranks, const void* const* partials, int num_partials,
                  void* scratch, void* const* outputs, int num_outputs, std::uint64_t count,
                  bool past_cache) {
  if (IsCompressed(operation)) {
    ReducePartials(operation, num_ranks, partials, num_partials, scratch, count);
    return WriteResult(operation, scratch, outputs, num_outputs, count, past_cache);
  }
  if (num_outputs == 0) return;
  Reduction reduction = OfPartials(operation, num_ranks, &count);
  reduction.past_cache = past_cache;
  Reduce(reduction, partials, num_partials, outputs, num_outputs, count);
}

void WriteResult(const Operation& operation, const void* result, void* const* outputs, int num_outputs,
                 std::uint64_t count, bool past_cache) {
  if (!IsCompressed(operation)) {
    if (num_outputs == 0) return;
    return Reduce({operation.dtype, ReduceOp::kSum, 1.0, 1.0, past_cache}, &result, 1, outputs, num_outputs,
                  count);
  }
  for (int i = 0; i < num_outputs; ++i) {
    HalvesToFloats(TypeOnWire(operation), static_cast<const std::uint16_t*>(result),
                   static_cast<float*>(outputs[i]), count);
  }
}

}  // namespace tf_smddp

// Kernels for the integers of 32 and 64 bits, compiled once for each instruction set. Narrower integers
// are in narrow_integer_kernels.cc.
#include "kernels/reduce/highway_config.h"
// highway_config.h must come first.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/reduce/integer_kernels.cc"
#include "hwy/foreach_target.h"
// foreach_target.h must come before the other headers.
#include <cstdint>

#include "kernels/reduce/fold-inl.h"
#include "kernels/reduce/wide_average.h"

HWY_BEFORE_NAMESPACE();
namespace tf_smddp {
namespace HWY_NAMESPACE {

// Sum and product are computed on unsigned lanes: the bits are the same, and wrapping is defined.
using Sum32 = NativeElement<std::uint32_t>;
using Sum64 = NativeElement<std::uint64_t>;

template <typename T, class Average>
Kernel Find32(ReduceOp op) {
  return ChooseKernel<Sum32, Average, NativeElement<T>, Sum32>(op);
}

template <typename T>
Kernel Find64(ReduceOp op) {
  if (op == ReduceOp::kAverage) return &WideAverage<T>;
  return ChooseKernel<Sum64, Sum64, NativeElement<T>, Sum64>(op);
}

Kernel FindIntegerKernel(DType dtype, ReduceOp op) {
  if (dtype == DType::kInt32) return Find32<std::int32_t, ExactInt32Element>(op);
  if (dtype == DType::kUInt32) return Find32<std::uint32_t, ExactUInt32Element>(op);
  if (dtype == DType::kInt64) return Find64<std::int64_t>(op);
  if (dtype == DType::kUInt64) return Find64<std::uint64_t>(op);
  return nullptr;
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace tf_smddp
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tf_smddp {
const FindKernel kFindIntegerKernel[kNumTargets] = TF_SMDDP_PER_TARGET(FindIntegerKernel);
}  // namespace tf_smddp
#endif

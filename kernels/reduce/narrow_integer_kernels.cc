// Kernels for the integers of 8 and 16 bits and for bool, compiled once for each instruction set.
#include "kernels/reduce/highway_config.h"
// highway_config.h must come first.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/reduce/narrow_integer_kernels.cc"
#include "hwy/foreach_target.h"
// foreach_target.h must come before the other headers.
#include <cstdint>

#include "kernels/reduce/fold-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tf_smddp {
namespace HWY_NAMESPACE {

// Sum and product are computed on unsigned lanes: the bits are the same, and wrapping is defined.
template <typename T>
Kernel Find8(ReduceOp op) {
  return ChooseKernel<NativeElement<std::uint8_t>, ExactNarrowElement<T>, NativeElement<T>, WideUInt8Element>(
      op);
}

template <typename T>
Kernel Find16(ReduceOp op) {
  using Unsigned = NativeElement<std::uint16_t>;
  return ChooseKernel<Unsigned, ExactNarrowElement<T>, NativeElement<T>, Unsigned>(op);
}

Kernel FindNarrowIntegerKernel(DType dtype, ReduceOp op) {
  if (dtype == DType::kInt8) return Find8<std::int8_t>(op);
  // The smaller of two bytes that are 0 or 1 is their logical and, the larger their logical or.
  if (dtype == DType::kUInt8 || dtype == DType::kBool) return Find8<std::uint8_t>(op);
  if (dtype == DType::kInt16) return Find16<std::int16_t>(op);
  if (dtype == DType::kUInt16) return Find16<std::uint16_t>(op);
  return nullptr;
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace tf_smddp
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tf_smddp {
const FindKernel kFindNarrowIntegerKernel[kNumTargets] = TF_SMDDP_PER_TARGET(FindNarrowIntegerKernel);
}  // namespace tf_smddp
#endif

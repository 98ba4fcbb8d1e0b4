// Kernels for float32 and float64, compiled once for each instruction set.
#include "kernels/reduce/highway_config.h"
// highway_config.h must come first.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/reduce/float_kernels.cc"
#include "hwy/foreach_target.h"
// foreach_target.h must come before the other headers.
#include "kernels/reduce/fold-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tf_smddp {
namespace HWY_NAMESPACE {

// Sum and average are the same kernel, which args.factors.divisor tells apart.
template <typename T>
Kernel FindNative(ReduceOp op) {
  using Element = NativeElement<T>;
  return ChooseKernel<Element, Element, Element, Element>(op);
}

Kernel FindFloatKernel(DType dtype, ReduceOp op) {
  if (dtype == DType::kFloat32) return FindNative<float>(op);
  if (dtype == DType::kFloat64) return FindNative<double>(op);
  return nullptr;
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace tf_smddp
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tf_smddp {
const FindKernel kFindFloatKernel[kNumTargets] = TF_SMDDP_PER_TARGET(FindFloatKernel);
}  // namespace tf_smddp
#endif

// Kernels for float16 and bfloat16, compiled once for each instruction set.
#include "kernels/reduce/highway_config.h"
// highway_config.h must come first.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/reduce/half_kernels.cc"
#include "hwy/foreach_target.h"
// foreach_target.h must come before the other headers.
#include "kernels/reduce/fold-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tf_smddp {
namespace HWY_NAMESPACE {

// Sum and average are the same kernel, which args.factors.divisor tells apart.
template <class Element>
Kernel FindHalf(ReduceOp op) {
  return ChooseKernel<Element, Element, Element, Element>(op);
}

Kernel FindHalfKernel(DType dtype, ReduceOp op) {
  if (dtype == DType::kFloat16) return FindHalf<Float16Element>(op);
  if (dtype == DType::kBFloat16) return FindHalf<BFloat16Element>(op);
  return nullptr;
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace tf_smddp
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tf_smddp {
const FindKernel kFindHalfKernel[kNumTargets] = TF_SMDDP_PER_TARGET(FindHalfKernel);
}  // namespace tf_smddp
#endif

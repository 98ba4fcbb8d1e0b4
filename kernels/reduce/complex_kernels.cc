// Kernels for complex64 and complex128, compiled once for each instruction set; the product is the same for
// all.
#include "kernels/reduce/highway_config.h"
// highway_config.h must come first.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/reduce/complex_kernels.cc"
#include "hwy/foreach_target.h"
// foreach_target.h must come before the other headers.
#include "kernels/reduce/complex_product.h"
#include "kernels/reduce/fold-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tf_smddp {
namespace HWY_NAMESPACE {

// Complex numbers are added, scaled and searched for NaNs part by part. T is the type of the parts.
template <typename T>
void SumParts(const KernelArgs& args) {
  KernelArgs parts = args;
  parts.count *= 2;
  RunKernel<NativeElement<T>, AddOp>(parts);
}

template <typename T>
Kernel FindComplex(ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum:
    case ReduceOp::kAverage:  // args.factors.divisor tells the two apart
      return &SumParts<T>;
    case ReduceOp::kProduct:
      return &ComplexProduct<T>;
    case ReduceOp::kMin:
    case ReduceOp::kMax:
      break;  // complex numbers have no order
  }
  return nullptr;
}

Kernel FindComplexKernel(DType dtype, ReduceOp op) {
  if (dtype == DType::kComplex64) return FindComplex<float>(op);
  if (dtype == DType::kComplex128) return FindComplex<double>(op);
  return nullptr;
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace tf_smddp
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tf_smddp {
const FindKernel kFindComplexKernel[kNumTargets] = TF_SMDDP_PER_TARGET(FindComplexKernel);
}  // namespace tf_smddp
#endif

// Kernels for int32, int64, uint8 and bool, once per instruction set. Not here: the int64 average
// (int64_average.h).
#include "kernels/reduce/highway_config.h"
// The config must come first.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/reduce/integer_kernels.cc"
#include "hwy/foreach_target.h"
// foreach_target.h must come before the rest.
#include <cstdint>

#include "kernels/reduce/fold-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tf_smddp {
namespace HWY_NAMESPACE {

// Sum and product are computed on unsigned lanes: the bits are the same, and wrapping is defined.
Kernel FindInt32Kernel(ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum:
      return &RunKernel<NativeElement<std::uint32_t>, AddOp>;
    case ReduceOp::kAverage:
      return &RunKernel<ExactInt32Element, AddOp>;
    case ReduceOp::kMin:
      return &RunKernel<NativeElement<std::int32_t>, MinOp>;
    case ReduceOp::kMax:
      return &RunKernel<NativeElement<std::int32_t>, MaxOp>;
    case ReduceOp::kProduct:
      return &RunKernel<NativeElement<std::uint32_t>, MulOp>;
  }
  return nullptr;
}

Kernel FindInt64Kernel(ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum:
      return &RunKernel<NativeElement<std::uint64_t>, AddOp>;
    case ReduceOp::kAverage:
      return nullptr;
    case ReduceOp::kMin:
      return &RunKernel<NativeElement<std::int64_t>, MinOp>;
    case ReduceOp::kMax:
      return &RunKernel<NativeElement<std::int64_t>, MaxOp>;
    case ReduceOp::kProduct:
      return &RunKernel<NativeElement<std::uint64_t>, MulOp>;
  }
  return nullptr;
}

Kernel FindUInt8Kernel(ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum:
      return &RunKernel<NativeElement<std::uint8_t>, AddOp>;
    case ReduceOp::kAverage:
      return &RunKernel<ExactUInt8Element, AddOp>;
    case ReduceOp::kMin:
      return &RunKernel<NativeElement<std::uint8_t>, MinOp>;
    case ReduceOp::kMax:
      return &RunKernel<NativeElement<std::uint8_t>, MaxOp>;
    case ReduceOp::kProduct:
      return &RunKernel<WideUInt8Element, MulOp>;
  }
  return nullptr;
}

Kernel FindIntegerKernel(DType dtype, ReduceOp op) {
  if (dtype == DType::kInt32) return FindInt32Kernel(op);
  if (dtype == DType::kInt64) return FindInt64Kernel(op);
  // For bytes that are 0 or 1, the smaller is the logical and, the larger the logical or.
  if (dtype == DType::kUInt8 || dtype == DType::kBool) return FindUInt8Kernel(op);
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

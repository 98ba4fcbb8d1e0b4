// The operations on accumulator vectors: each combines one input with the accumulator. Not here: what happens
// to the inputs before, and to the result after the last one (factors-inl.h).
//
// This header is included once for each target.
#if defined(TF_SMDDP_KERNELS_REDUCE_OPERATIONS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TF_SMDDP_KERNELS_REDUCE_OPERATIONS_INL_H_
#undef TF_SMDDP_KERNELS_REDUCE_OPERATIONS_INL_H_
#else
#define TF_SMDDP_KERNELS_REDUCE_OPERATIONS_INL_H_
#endif

#include <type_traits>

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace tf_smddp {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

struct AddOp {
  template <class D>
  static HWY_INLINE hn::Vec<D> Combine(D /*d*/, hn::Vec<D> acc, hn::Vec<D> v) {
    return hn::Add(acc, v);
  }
};

struct MulOp {
  template <class D>
  static HWY_INLINE hn::Vec<D> Combine(D /*d*/, hn::Vec<D> acc, hn::Vec<D> v) {
    return hn::Mul(acc, v);
  }
};

// Highway's Min and Max of floats differ between targets for NaN and for zeros of both signs. So the kernels
// compare and select: of equal inputs the earlier one stays, and a NaN stays.
template <class D, class V, class M>
HWY_INLINE V SelectOrNaN(D /*d*/, M take, V acc, V v) {
  return hn::IfThenElse(hn::Or(take, hn::IsNaN(v)), v, acc);
}

struct MinOp {
  template <class D>
  static HWY_INLINE hn::Vec<D> Combine(D d, hn::Vec<D> acc, hn::Vec<D> v) {
    if constexpr (std::is_floating_point_v<hn::TFromD<D>>) {
      return SelectOrNaN(d, hn::Lt(v, acc), acc, v);
    } else {
      return hn::Min(acc, v);
    }
  }
};

struct MaxOp {
  template <class D>
  static HWY_INLINE hn::Vec<D> Combine(D d, hn::Vec<D> acc, hn::Vec<D> v) {
    if constexpr (std::is_floating_point_v<hn::TFromD<D>>) {
      return SelectOrNaN(d, hn::Gt(v, acc), acc, v);
    } else {
      return hn::Max(acc, v);
    }
  }
};

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace tf_smddp
HWY_AFTER_NAMESPACE();

#endif  // TF_SMDDP_KERNELS_REDUCE_OPERATIONS_INL_H_

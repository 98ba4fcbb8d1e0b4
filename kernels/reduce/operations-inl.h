// The operations on accumulator vectors: one input more, and what is left to do after the last.
//
// Included once per target.
#if defined(TF_SMDDP_KERNELS_REDUCE_OPERATIONS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TF_SMDDP_KERNELS_REDUCE_OPERATIONS_INL_H_
#undef TF_SMDDP_KERNELS_REDUCE_OPERATIONS_INL_H_
#else
#define TF_SMDDP_KERNELS_REDUCE_OPERATIONS_INL_H_
#endif

#include <cstdint>
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

// Highway's Min and Max of floats differ by target for NaN and for zeros of both signs. So compare and
// select: the earlier input wins a tie, and a NaN stays.
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

// After the last input: nothing for integers; for floats the division of kAverage, and one pattern
// for all NaNs.
//
// Which of two NaNs an addition hands on depends on the order of its operands, which is the
// compiler's choice, and the NaN of inf - inf has another sign on x86 than on ARM. Only a fixed
// pattern is the same everywhere.
template <class D, bool kIsFloat = std::is_floating_point_v<hn::TFromD<D>>>
class Finisher {
 public:
  Finisher(D /*d*/, int /*divisor*/) {}
  HWY_INLINE hn::Vec<D> Finish(D /*d*/, hn::Vec<D> v) const { return v; }
};

template <class D>
class Finisher<D, true> {
 public:
  using T = hn::TFromD<D>;

  HWY_INLINE Finisher(D d, int divisor)
      : divisor_(hn::Set(d, static_cast<T>(divisor))),
        reciprocal_(hn::Set(d, T{1} / static_cast<T>(divisor))),
        divide_((divisor & (divisor - 1)) != 0),
        multiply_(!divide_ && divisor != 1) {}

  HWY_INLINE hn::Vec<D> Finish(D d, hn::Vec<D> v) const {
    // By a power of two, both are the exact quotient rounded once, so they have the same bits.
    if (multiply_) v = hn::Mul(v, reciprocal_);
    if (divide_) v = hn::Div(v, divisor_);
    return hn::IfThenElse(hn::IsNaN(v), CanonicalNaN(d), v);
  }

 private:
  static HWY_INLINE hn::Vec<D> CanonicalNaN(D d) {
    using Bits = hwy::MakeUnsigned<T>;
    // The exponent's bits and the quiet bit below them.
    constexpr Bits kQuietNaN = sizeof(T) == 4 ? Bits{0x7FC00000u} : static_cast<Bits>(0x7FF8000000000000u);
    return hn::BitCast(d, hn::Set(hn::Rebind<Bits, D>(), kQuietNaN));
  }

  const hn::Vec<D> divisor_;
  const hn::Vec<D> reciprocal_;
  const bool divide_;
  const bool multiply_;
};

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace tf_smddp
HWY_AFTER_NAMESPACE();

#endif  // TF_SMDDP_KERNELS_REDUCE_OPERATIONS_INL_H_

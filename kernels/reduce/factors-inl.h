// Factors: the arithmetic around the operation. Each input is multiplied by prescale. The result is divided,
// then multiplied by postscale, and its NaNs get one pattern. Integer accumulators are left as they are.
//
// Whether there are factors is a template parameter: on data in the cache, a branch in the loop costs up to a
// third of the speed, and multiplying in any case up to a fifth. The price is twice the code for the types
// that have factors.
//
// This header is included once for each target.
#if defined(TF_SMDDP_KERNELS_REDUCE_FACTORS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TF_SMDDP_KERNELS_REDUCE_FACTORS_INL_H_
#undef TF_SMDDP_KERNELS_REDUCE_FACTORS_INL_H_
#else
#define TF_SMDDP_KERNELS_REDUCE_FACTORS_INL_H_
#endif

#include <cstdint>
#include <type_traits>

#include "hwy/highway.h"
#include "kernels/reduce/kernel.h"

HWY_BEFORE_NAMESPACE();
namespace tf_smddp {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// Whether a kernel's `factors` change anything apart from the division.
inline bool IsScaled(const Factors& factors) { return factors.prescale != 1.0 || factors.postscale != 1.0; }

// Prepares one input, which has been converted to the accumulator's type.
template <class D, bool kScaled>
class Prescaler {
 public:
  HWY_INLINE Prescaler(D /*d*/, const Factors& /*factors*/) {}
  HWY_INLINE hn::Vec<D> Scale(hn::Vec<D> v) const { return v; }
};

template <class D>
class Prescaler<D, true> {
 public:
  HWY_INLINE Prescaler(D d, const Factors& factors)
      : factor_(hn::Set(d, static_cast<hn::TFromD<D>>(factors.prescale))) {}
  HWY_INLINE hn::Vec<D> Scale(hn::Vec<D> v) const { return hn::Mul(v, factor_); }

 private:
  const hn::Vec<D> factor_;
};

// Finishes the combined value.
//
// All NaNs get one pattern, because only a fixed pattern is the same everywhere: which of two NaNs an
// addition returns depends on the order of its operands, which the compiler chooses, and the NaN of inf - inf
// has another sign on x86 than on ARM.
template <class D, bool kScaled, bool kIsFloat = std::is_floating_point_v<hn::TFromD<D>>>
class Finisher {
 public:
  HWY_INLINE Finisher(D /*d*/, const Factors& /*factors*/) {}
  HWY_INLINE hn::Vec<D> Finish(D /*d*/, hn::Vec<D> v) const { return v; }
};

template <class D, bool kScaled>
class Finisher<D, kScaled, true> {
 public:
  using T = hn::TFromD<D>;

  HWY_INLINE Finisher(D d, const Factors& factors)
      : divisor_(hn::Set(d, static_cast<T>(factors.divisor))),
        reciprocal_(hn::Set(d, T{1} / static_cast<T>(factors.divisor))),
        postscale_(hn::Set(d, static_cast<T>(factors.postscale))),
        divide_((factors.divisor & (factors.divisor - 1)) != 0),
        multiply_(!divide_ && factors.divisor != 1) {}

  HWY_INLINE hn::Vec<D> Finish(D d, hn::Vec<D> v) const {
    // For a power of two, product and quotient are the exact quotient rounded once, so their bits are equal.
    if (multiply_) v = hn::Mul(v, reciprocal_);
    if (divide_) v = hn::Div(v, divisor_);
    if constexpr (kScaled) v = hn::Mul(v, postscale_);
    return hn::IfThenElse(hn::IsNaN(v), CanonicalNaN(d), v);
  }

 private:
  static HWY_INLINE hn::Vec<D> CanonicalNaN(D d) {
    using Bits = hwy::MakeUnsigned<T>;
    // The bits of the exponent, and the quiet bit below them.
    constexpr Bits kQuietNaN = sizeof(T) == 4 ? Bits{0x7FC00000u} : static_cast<Bits>(0x7FF8000000000000u);
    return hn::BitCast(d, hn::Set(hn::Rebind<Bits, D>(), kQuietNaN));
  }

  const hn::Vec<D> divisor_;
  const hn::Vec<D> reciprocal_;
  const hn::Vec<D> postscale_;
  const bool divide_;
  const bool multiply_;
};

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace tf_smddp
HWY_AFTER_NAMESPACE();

#endif  // TF_SMDDP_KERNELS_REDUCE_FACTORS_INL_H_

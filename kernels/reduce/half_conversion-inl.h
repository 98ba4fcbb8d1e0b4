// Conversions of vectors between float32 and float16 or bfloat16.
//
// Highway 1.0.3 has such conversions. But its demotion to bfloat16 truncates on every target, and its
// demotion to float16 truncates where the CPU has no instruction for it, and loses infinity and NaN there.
// The conversions that are right are used, and the others are written here. All need the IEEE environment
// (float_environment.h).
//
// This header is included once for each target.
#if defined(TF_SMDDP_KERNELS_REDUCE_HALF_CONVERSION_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TF_SMDDP_KERNELS_REDUCE_HALF_CONVERSION_INL_H_
#undef TF_SMDDP_KERNELS_REDUCE_HALF_CONVERSION_INL_H_
#else
#define TF_SMDDP_KERNELS_REDUCE_HALF_CONVERSION_INL_H_
#endif

#include <cstdint>

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace tf_smddp {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// D is a tag of float lanes; Bits16<D> is the vector of as many 16-bit patterns.
template <class D>
using Bits16 = hn::Vec<hn::Rebind<std::uint16_t, D>>;

// Converts 16-bit patterns to unsigned 32-bit lanes.
template <class D>
HWY_INLINE hn::Vec<hn::RebindToUnsigned<D>> Widen(D d, Bits16<D> bits) {
  (void)d;
  return hn::PromoteTo(hn::RebindToUnsigned<D>(), bits);
}

// Converts unsigned 32-bit lanes, which are below 2^16, to 16-bit patterns.
template <class D>
HWY_INLINE Bits16<D> Narrow(D d, hn::Vec<hn::RebindToUnsigned<D>> bits) {
  (void)d;
  // The signed demotion saturates at 65535, and is one instruction on every target.
  return hn::DemoteTo(hn::Rebind<std::uint16_t, D>(), hn::BitCast(hn::RebindToSigned<D>(), bits));
}

// The conversion is exact, and NaN stays NaN.
template <class D>
HWY_INLINE hn::Vec<D> FromBFloat16(D d, Bits16<D> bits) {
  return hn::BitCast(d, hn::ShiftLeft<16>(Widen(d, bits)));
}

// Rounds to nearest even; values beyond the largest become infinity. A NaN must be the canonical one
// (0x7FC00000).
template <class D>
HWY_INLINE Bits16<D> ToBFloat16(D d, hn::Vec<D> v) {
  const hn::RebindToUnsigned<D> du;
  const auto bits = hn::BitCast(du, v);
  // bfloat16 is the upper half of float32. Adding just under half of its last place, plus one if it is odd,
  // carries into it exactly when it must be rounded up; a carry out of the mantissa is the next exponent.
  const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(du, 1u));
  const auto rounded = hn::Add(bits, hn::Add(odd, hn::Set(du, 0x7FFFu)));
  return Narrow(d, hn::ShiftRight<16>(rounded));
}

#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3 || (HWY_TARGET == HWY_NEON && HWY_ARCH_ARM_A64)

// The CPU has instructions for both: widening is exact, and narrowing rounds to nearest even.
template <class D>
HWY_INLINE hn::Vec<D> FromFloat16(D d, Bits16<D> bits) {
  return hn::PromoteTo(d, hn::BitCast(hn::Rebind<hwy::float16_t, D>(), bits));
}
template <class D>
HWY_INLINE Bits16<D> ToFloat16(D d, hn::Vec<D> v) {
  (void)d;
  return hn::BitCast(hn::Rebind<std::uint16_t, D>(), hn::DemoteTo(hn::Rebind<hwy::float16_t, D>(), v));
}

#else

// The conversion is exact, and NaN stays NaN.
template <class D>
HWY_INLINE hn::Vec<D> FromFloat16(D d, Bits16<D> bits16) {
  const hn::RebindToUnsigned<D> du;
  const hn::RebindToSigned<D> di;
  const auto bits = Widen(d, bits16);
  const auto magnitude = hn::And(bits, hn::Set(du, 0x7FFFu));
  const auto sign = hn::ShiftLeft<16>(hn::Xor(bits, magnitude));
  // In float32's fields, the value is 2^(127-15) times too small; that is true of subnormals as well, and the
  // product is exact. The exponent of infinity and NaN (31) must become 255 instead.
  const auto scaled = hn::Mul(hn::BitCast(d, hn::ShiftLeft<13>(magnitude)), hn::Set(d, 0x1p112f));
  const auto special = hn::Gt(hn::BitCast(di, magnitude), hn::Set(di, 0x7BFF));
  const auto exponent = hn::And(hn::BitCast(du, hn::VecFromMask(di, special)), hn::Set(du, 0x7F800000u));
  return hn::BitCast(d, hn::Or(hn::Or(hn::BitCast(du, scaled), exponent), sign));
}

// Rounds to nearest even; from 65520 on, to infinity. A NaN must be the canonical one (0x7FC00000).
template <class D>
HWY_INLINE Bits16<D> ToFloat16(D d, hn::Vec<D> v) {
  const hn::RebindToUnsigned<D> du;
  const hn::RebindToSigned<D> di;
  const auto bits = hn::BitCast(du, v);
  const auto magnitude = hn::And(bits, hn::Set(du, 0x7FFFFFFFu));
  const auto sign = hn::ShiftRight<16>(hn::Xor(bits, magnitude));

  // For normal results, the exponent is rebiased, and bit 13 is rounded as in ToBFloat16.
  const auto odd = hn::And(hn::ShiftRight<13>(magnitude), hn::Set(du, 1u));
  const auto rebias_and_round = hn::Set(du, ((15u - 127u) << 23) + 0xFFFu);
  const auto normal = hn::ShiftRight<13>(hn::Add(hn::Add(magnitude, odd), rebias_and_round));
  // For subnormal results (below 2^-14), 0.5 is added: the last place of the sum is 2^-24, as it is in
  // float16, so the addition rounds, and the mantissa of the sum is the pattern.
  const auto with_half = hn::Add(hn::BitCast(d, magnitude), hn::Set(d, 0.5f));
  const auto subnormal = hn::Sub(hn::BitCast(du, with_half), hn::Set(du, 126u << 23));
  // These are 65536 and more, infinity and NaN. From 65520 on, the rounding of normal results carries into
  // infinity.
  const auto is_nan = hn::Gt(hn::BitCast(di, magnitude), hn::Set(di, 0x7F800000));
  const auto special = hn::IfThenElse(is_nan, hn::Set(di, 0x7E00), hn::Set(di, 0x7C00));

  const auto is_subnormal = hn::Lt(hn::BitCast(di, magnitude), hn::Set(di, 113 << 23));
  const auto is_special = hn::Gt(hn::BitCast(di, magnitude), hn::Set(di, (143 << 23) - 1));
  const auto finite = hn::IfThenElse(is_subnormal, hn::BitCast(di, subnormal), hn::BitCast(di, normal));
  const auto result = hn::IfThenElse(is_special, special, finite);
  return Narrow(d, hn::Or(hn::BitCast(du, result), sign));
}

#endif

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace tf_smddp
HWY_AFTER_NAMESPACE();

#endif  // TF_SMDDP_KERNELS_REDUCE_HALF_CONVERSION_INL_H_

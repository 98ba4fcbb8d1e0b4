// Elements: how the elements of each type are loaded into accumulator lanes and stored from them.
//
// An Element has these members:
//   Lane         the type in memory
//   Acc          the type of the accumulator's lanes
//   Load         converts from memory to the accumulator
//   Pack         converts from the accumulator to what Store writes; it is called once for each vector,
//                whatever the number of outputs
//   Store        writes to memory
//   Stream       writes to memory past the cache; the address is aligned to the vector
//   kHasFactors  tells whether the type is inexact, so that factors apply
//
// This header is included once for each target.
#if defined(TF_SMDDP_KERNELS_REDUCE_ELEMENTS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TF_SMDDP_KERNELS_REDUCE_ELEMENTS_INL_H_
#undef TF_SMDDP_KERNELS_REDUCE_ELEMENTS_INL_H_
#else
#define TF_SMDDP_KERNELS_REDUCE_ELEMENTS_INL_H_
#endif

#include <cstdint>
#include <type_traits>

#include "hwy/highway.h"
#include "kernels/reduce/half_conversion-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tf_smddp {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// An element that is accumulated in the type that it has in memory.
template <typename T>
struct NativeElement {
  using Lane = T;
  using Acc = T;
  static constexpr bool kHasFactors = std::is_floating_point_v<T>;
  template <class D>
  static HWY_INLINE hn::Vec<D> Load(D d, const Lane* p) {
    return hn::LoadU(d, p);
  }
  template <class D>
  static HWY_INLINE hn::Vec<D> Pack(D /*d*/, hn::Vec<D> v) {
    return v;
  }
  template <class D>
  static HWY_INLINE void Store(hn::Vec<D> v, D d, Lane* p) {
    hn::StoreU(v, d, p);
  }
  template <class D>
  static HWY_INLINE void Stream(hn::Vec<D> v, D d, Lane* p) {
    hn::Stream(v, d,
               p);  // Highway streams 16 bytes at least, and only the scalar target's vectors are shorter
  }
};

// The base of elements whose accumulator type A is not their type T in memory. Their vectors have as many
// memory lanes as accumulator lanes.
template <typename T, typename A>
struct WidenedElement {
  using Lane = T;
  using Acc = A;
  static constexpr bool kHasFactors = false;
  template <class D>
  static HWY_INLINE hn::Vec<hn::Rebind<T, D>> LoadLanes(D /*d*/, const Lane* p) {
    return hn::LoadU(hn::Rebind<T, D>(), p);
  }
  template <class D>
  static HWY_INLINE void Store(hn::Vec<hn::Rebind<T, D>> v, D /*d*/, Lane* p) {
    hn::StoreU(v, hn::Rebind<T, D>(), p);
  }
  template <class D>
  static HWY_INLINE void Stream(hn::Vec<hn::Rebind<T, D>> v, D /*d*/, Lane* p) {
    const hn::Rebind<T, D> dt;
    // Highway streams at least 16 bytes, even if the vector is shorter.
    if constexpr (hn::MaxLanes(dt) * sizeof(T) >= 16) {
      hn::Stream(v, dt, p);
    } else {
      hn::StoreU(v, dt, p);
    }
  }
};

struct Float16Element : WidenedElement<std::uint16_t, float> {
  static constexpr bool kHasFactors = true;
  template <class D>
  static HWY_INLINE hn::Vec<D> Load(D d, const Lane* p) {
    return FromFloat16(d, LoadLanes(d, p));
  }
  template <class D>
  static HWY_INLINE Bits16<D> Pack(D d, hn::Vec<D> v) {
    return ToFloat16(d, v);
  }
};

struct BFloat16Element : WidenedElement<std::uint16_t, float> {
  static constexpr bool kHasFactors = true;
  template <class D>
  static HWY_INLINE hn::Vec<D> Load(D d, const Lane* p) {
    return FromBFloat16(d, LoadLanes(d, p));
  }
  template <class D>
  static HWY_INLINE Bits16<D> Pack(D d, hn::Vec<D> v) {
    return ToBFloat16(d, v);
  }
};

// An int32 whose average is taken. A double holds the sum of 16,384 of them exactly (46 bits). Its rounded
// quotient truncates to the right integer: a quotient that is no integer is at least 2^-14 away from the next
// integer, and the rounding error of values below 2^31 is below 2^-22.
struct ExactInt32Element : WidenedElement<std::int32_t, double> {
  template <class D>
  static HWY_INLINE hn::Vec<D> Load(D d, const Lane* p) {
    return hn::PromoteTo(d, LoadLanes(d, p));
  }
  template <class D>
  static HWY_INLINE hn::Vec<hn::Rebind<Lane, D>> Pack(D /*d*/, hn::Vec<D> v) {
    // HWY_SCALAR takes -2147483647.5 for out of range, so truncate first.
    return hn::DemoteTo(hn::Rebind<Lane, D>(), hn::Trunc(v));
  }
};

// A uint32 whose average is taken; the argument is the same. Vectors convert between double and signed
// integers only, so 2^31 is subtracted before the conversion and added after it, which is exact.
struct ExactUInt32Element : WidenedElement<std::uint32_t, double> {
  template <class D>
  static HWY_INLINE hn::Vec<D> Load(D d, const Lane* p) {
    const hn::Rebind<std::uint32_t, D> du;
    const auto moved =
        hn::BitCast(hn::Rebind<std::int32_t, D>(), hn::Xor(LoadLanes(d, p), hn::Set(du, kTop)));
    return hn::Add(hn::PromoteTo(d, moved), hn::Set(d, 0x1p31));
  }
  template <class D>
  static HWY_INLINE hn::Vec<hn::Rebind<Lane, D>> Pack(D d, hn::Vec<D> v) {
    const hn::Rebind<std::uint32_t, D> du;
    const auto moved = hn::DemoteTo(hn::Rebind<std::int32_t, D>(), hn::Sub(hn::Trunc(v), hn::Set(d, 0x1p31)));
    return hn::Xor(hn::BitCast(du, moved), hn::Set(du, kTop));
  }

 private:
  static constexpr std::uint32_t kTop = 0x80000000u;
};

// An integer of 8 or 16 bits whose average is taken. The argument is the same for 16,384 of 8 bits, and for
// 256 of 16 bits: their sum has 24 bits at most, which a float holds.
template <typename T>
struct ExactNarrowElement : WidenedElement<T, float> {
  using Lane = T;
  template <class D>
  static HWY_INLINE hn::Vec<D> Load(D d, const Lane* p) {
    const hn::RebindToSigned<D> di;
    return hn::ConvertTo(d, hn::PromoteTo(di, WidenedElement<T, float>::LoadLanes(d, p)));
  }
  template <class D>
  static HWY_INLINE hn::Vec<hn::Rebind<Lane, D>> Pack(D /*d*/, hn::Vec<D> v) {
    return hn::DemoteTo(hn::Rebind<Lane, D>(), hn::ConvertTo(hn::RebindToSigned<D>(), v));
  }
};

// An integer of 8 bits that is multiplied. There is no 8-bit multiplication. A 16-bit product that wraps has
// the same low 8 bits, and they are the same for signed and unsigned factors.
struct WideUInt8Element : WidenedElement<std::uint8_t, std::uint16_t> {
  template <class D>
  static HWY_INLINE hn::Vec<D> Load(D d, const Lane* p) {
    return hn::PromoteTo(d, LoadLanes(d, p));
  }
  template <class D>
  static HWY_INLINE hn::Vec<hn::Rebind<Lane, D>> Pack(D /*d*/, hn::Vec<D> v) {
    return hn::TruncateTo(hn::Rebind<Lane, D>(), v);
  }
};

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace tf_smddp
HWY_AFTER_NAMESPACE();

#endif  // TF_SMDDP_KERNELS_REDUCE_ELEMENTS_INL_H_

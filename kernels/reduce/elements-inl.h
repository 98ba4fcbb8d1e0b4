// How elements of each type are read into accumulator lanes and written back.
//
// An Element has: Lane (the type in memory), Acc (the type of the accumulator's lanes), Load (from
// memory to accumulator), Pack (from accumulator to what Store writes; once per vector, however
// many outputs) and Store.
//
// Included once per target.
#if defined(TF_SMDDP_KERNELS_REDUCE_ELEMENTS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TF_SMDDP_KERNELS_REDUCE_ELEMENTS_INL_H_
#undef TF_SMDDP_KERNELS_REDUCE_ELEMENTS_INL_H_
#else
#define TF_SMDDP_KERNELS_REDUCE_ELEMENTS_INL_H_
#endif

#include <cstdint>

#include "hwy/highway.h"
#include "kernels/reduce/half_conversion-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tf_smddp {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// Accumulates in the type it has in memory.
template <typename T>
struct NativeElement {
  using Lane = T;
  using Acc = T;
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
};

// What the others share: memory lanes of type T, as many as there are accumulator lanes.
template <typename T, typename A>
struct WidenedElement {
  using Lane = T;
  using Acc = A;
  template <class D>
  static HWY_INLINE hn::Vec<hn::Rebind<T, D>> LoadLanes(D /*d*/, const Lane* p) {
    return hn::LoadU(hn::Rebind<T, D>(), p);
  }
  template <class D>
  static HWY_INLINE void Store(hn::Vec<hn::Rebind<T, D>> v, D /*d*/, Lane* p) {
    hn::StoreU(v, hn::Rebind<T, D>(), p);
  }
};

struct Float16Element : WidenedElement<std::uint16_t, float> {
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
  template <class D>
  static HWY_INLINE hn::Vec<D> Load(D d, const Lane* p) {
    return FromBFloat16(d, LoadLanes(d, p));
  }
  template <class D>
  static HWY_INLINE Bits16<D> Pack(D d, hn::Vec<D> v) {
    return ToBFloat16(d, v);
  }
};

// int32 for the average. A double holds the sum of 64 of them exactly (38 bits). Its rounded quotient
// truncates to the right integer: a quotient that is no integer is at least 1/64 away from the next, and
// below 2^31 the rounding error is below 2^-22.
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

// uint8 for the average, by the same argument: 14 bits in a float, and an error below 2^-16.
struct ExactUInt8Element : WidenedElement<std::uint8_t, float> {
  template <class D>
  static HWY_INLINE hn::Vec<D> Load(D d, const Lane* p) {
    return hn::ConvertTo(d, hn::PromoteTo(hn::RebindToSigned<D>(), LoadLanes(d, p)));
  }
  template <class D>
  static HWY_INLINE hn::Vec<hn::Rebind<Lane, D>> Pack(D /*d*/, hn::Vec<D> v) {
    return hn::DemoteTo(hn::Rebind<Lane, D>(), hn::ConvertTo(hn::RebindToSigned<D>(), v));
  }
};

// uint8 for the product: there is no 8-bit multiplication, and 16 bits that wrap end in the same low 8 bits.
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

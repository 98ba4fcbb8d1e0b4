// The conversions, compiled once for each instruction set.
#include "kernels/reduce/highway_config.h"
// highway_config.h must come first.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/reduce/convert.cc"
#include "hwy/foreach_target.h"
// foreach_target.h must come before the other headers.
#include <cstring>

#include "kernels/reduce/convert.h"
#include "kernels/reduce/elements-inl.h"
#include "kernels/reduce/factors-inl.h"
#include "kernels/reduce/float_environment.h"
#include "kernels/reduce/targets.h"

HWY_BEFORE_NAMESPACE();
namespace tf_smddp {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

using Floats = hn::ScalableTag<float>;

// Each converts one vector.
template <class Half>
HWY_INLINE void ConvertVector(const float* from, std::uint16_t* to) {
  const Floats d;
  const Finisher<Floats, /*kScaled=*/false> finisher(d, Factors{1.0, 1, 1.0});  // it makes NaNs canonical
  Half::Store(Half::Pack(d, finisher.Finish(d, hn::LoadU(d, from))), d, to);
}
template <class Half>
HWY_INLINE void ConvertVector(const std::uint16_t* from, float* to) {
  const Floats d;
  hn::StoreU(Half::Load(d, from), d, to);
}

// The last vector is padded if it is partial, so that the same instructions convert it.
template <class Half, class From, class To>
void Convert(const From* from, To* to, std::size_t count) {
  const std::size_t lanes = hn::Lanes(Floats());
  std::size_t e = 0;
  for (; e + lanes <= count; e += lanes) ConvertVector<Half>(from + e, to + e);
  if (e == count) return;
  HWY_ALIGN From padded[hn::MaxLanes(Floats())] = {};
  HWY_ALIGN To converted[hn::MaxLanes(Floats())];
  std::memcpy(padded, from + e, (count - e) * sizeof(From));
  ConvertVector<Half>(padded, converted);
  std::memcpy(to + e, converted, (count - e) * sizeof(To));
}

void Narrowed(DType half, const float* from, std::uint16_t* to, std::size_t count) {
  if (half == DType::kFloat16) {
    Convert<Float16Element>(from, to, count);
  } else {
    Convert<BFloat16Element>(from, to, count);
  }
}

void Widened(DType half, const std::uint16_t* from, float* to, std::size_t count) {
  if (half == DType::kFloat16) {
    Convert<Float16Element>(from, to, count);
  } else {
    Convert<BFloat16Element>(from, to, count);
  }
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace tf_smddp
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tf_smddp {
namespace {

using ToHalvesKernel = void (*)(DType half, const float* from, std::uint16_t* to, std::size_t count);
using ToFloatsKernel = void (*)(DType half, const std::uint16_t* from, float* to, std::size_t count);

constexpr ToHalvesKernel kToHalves[kNumTargets] = TF_SMDDP_PER_TARGET(Narrowed);
constexpr ToFloatsKernel kToFloats[kNumTargets] = TF_SMDDP_PER_TARGET(Widened);

}  // namespace

void FloatsToHalvesOn(const ReduceTargetInfo& target, DType half, const float* from, std::uint16_t* to,
                      std::size_t count) {
  const ScopedIeeeEnvironment ieee;
  kToHalves[target.id](half, from, to, count);
}

void HalvesToFloatsOn(const ReduceTargetInfo& target, DType half, const std::uint16_t* from, float* to,
                      std::size_t count) {
  const ScopedIeeeEnvironment ieee;
  kToFloats[target.id](half, from, to, count);
}

void FloatsToHalves(DType half, const float* from, std::uint16_t* to, std::size_t count) {
  FloatsToHalvesOn(BestReduceTarget(), half, from, to, count);
}

void HalvesToFloats(DType half, const std::uint16_t* from, float* to, std::size_t count) {
  HalvesToFloatsOn(BestReduceTarget(), half, from, to, count);
}

}  // namespace tf_smddp
#endif

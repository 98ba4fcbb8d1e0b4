// The loop: RunKernel<Element, Op> is the Kernel for an element type and an operation.
//
// With few inputs and outputs there is one pass. Each of its steps holds 4 vectors in registers, folds all
// inputs into them in index order, and stores them to every output.
//
// Many inputs or outputs are many streams, which would evict each other from the prefetchers and the TLB. So
// the range is cut into blocks. A block is folded in groups of kMaxStreams inputs; between two groups the
// accumulators are kept in a buffer that stays in the L1 cache. Further outputs are copied from the first
// one. The order of the operations on one element never changes, so neither do the bits.
//
// The last vector is padded if it is partial, so that the same instructions compute it.
//
// This header is included once for each target.
#if defined(TF_SMDDP_KERNELS_REDUCE_FOLD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TF_SMDDP_KERNELS_REDUCE_FOLD_INL_H_
#undef TF_SMDDP_KERNELS_REDUCE_FOLD_INL_H_
#else
#define TF_SMDDP_KERNELS_REDUCE_FOLD_INL_H_
#endif

#include <cstddef>
#include <cstring>
#include <type_traits>

#include "hwy/cache_control.h"
#include "hwy/highway.h"
#include "kernels/reduce/elements-inl.h"
#include "kernels/reduce/factors-inl.h"
#include "kernels/reduce/kernel.h"
#include "kernels/reduce/operations-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tf_smddp {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

constexpr int kMaxStreams = 8;             // one pass handles so many inputs, and so many outputs
constexpr std::size_t kBlockBytes = 8192;  // the accumulators of a block

// Describes one pass: a group of inputs over elements [begin, begin + count).
template <typename Acc>
struct FoldArgs {
  const void* const* inputs;
  int num_inputs;
  void* const* outputs;
  int num_outputs;
  const Factors& factors;
  std::size_t begin;
  std::size_t count;
  Acc* carry;  // the accumulators of the range, padded to whole vectors; null if first and last
  bool first;  // the pass starts from inputs[0], else from carry
  bool last;   // the pass ends in the outputs, else in carry
};

// Loads the first `lanes` lanes from p, and sets the others to 0.
template <class Element, class D>
HWY_INLINE hn::Vec<D> LoadPartial(D d, const typename Element::Lane* p, std::size_t lanes) {
#if HWY_TARGET == HWY_AVX3
  // AVX-512 does not read lanes that are masked out; on AVX2 it depends on the processor. It is faster, since
  // loading a vector that was just stored in pieces makes the processor wait.
  using Acc = typename Element::Acc;
  if constexpr (std::is_same_v<Element, NativeElement<Acc>> && sizeof(Acc) >= 4) {
    return hn::MaskedLoad(hn::FirstN(d, lanes), d, p);
  }
#endif
  HWY_ALIGN typename Element::Lane padded[hn::MaxLanes(D())] = {};
  std::memcpy(padded, p, lanes * sizeof(padded[0]));
  return Element::Load(d, padded);
}

// Folds one vector at element e of the range, of which `lanes` lanes exist.
template <class Element, class Op, bool kScaled, class D>
HWY_INLINE void FoldVector(D d, const FoldArgs<typename Element::Acc>& args,
                           const Prescaler<D, kScaled>& prescaler, const Finisher<D, kScaled>& finisher,
                           std::size_t e, std::size_t lanes) {
  using Lane = typename Element::Lane;
  const bool whole = lanes == hn::Lanes(d);
  const std::size_t at = args.begin + e;
  hn::Vec<D> acc = hn::Zero(d);
  if (!args.first) acc = hn::LoadU(d, args.carry + e);
  for (int i = 0; i < args.num_inputs; ++i) {
    const Lane* input = static_cast<const Lane*>(args.inputs[i]) + at;
    const hn::Vec<D> v =
        prescaler.Scale(whole ? Element::Load(d, input) : LoadPartial<Element>(d, input, lanes));
    acc = args.first && i == 0 ? v : Op::Combine(d, acc, v);
  }
  if (!args.last) {
    hn::StoreU(acc, d, args.carry + e);
    return;
  }
  HWY_ALIGN Lane result[hn::MaxLanes(D())];
  Element::Store(Element::Pack(d, finisher.Finish(d, acc)), d, result);
  for (int k = 0; k < args.num_outputs; ++k) {
    std::memcpy(static_cast<Lane*>(args.outputs[k]) + at, result, lanes * sizeof(Lane));
  }
}

template <class Element, bool kStreams, class P, class D>
HWY_INLINE void Put(P packed, D d, typename Element::Lane* output) {
  if constexpr (kStreams) {
    Element::Stream(packed, d, output);
  } else {
    Element::Store(packed, d, output);
  }
}

// Stands for as many inputs, or outputs, as the arguments say.
constexpr int kAny = 0;

// Runs one pass. It is up to 1.7 times as fast (2 inputs and 2 outputs of 64 KiB) when the compiler knows the
// numbers of inputs and outputs. So kInputs and kOutputs are kAny, or these numbers, and then the pass is
// both first and last.
template <class Element, class Op, bool kScaled, bool kStreams, int kInputs, int kOutputs>
HWY_NOINLINE void Fold(const FoldArgs<typename Element::Acc>& args) {
  using Lane = typename Element::Lane;
  using D = hn::ScalableTag<typename Element::Acc>;
  using V = hn::Vec<D>;
  const D d;
  const Prescaler<D, kScaled> prescaler(d, args.factors);
  const Finisher<D, kScaled> finisher(d, args.factors);
  const std::size_t lanes = hn::Lanes(d);
  // These are copies, since the compiler must suppose that a store to an output changes args.
  const int num_inputs = kInputs == kAny ? args.num_inputs : kInputs;
  const int num_outputs = kOutputs == kAny ? args.num_outputs : kOutputs;
  const bool first = kInputs != kAny || args.first, last = kOutputs != kAny || args.last;
  const Lane* inputs[kInputs == kAny ? kMaxStreams : kInputs];
  Lane* outputs[kOutputs == kAny ? kMaxStreams : kOutputs];
  for (int i = 0; i < num_inputs; ++i) inputs[i] = static_cast<const Lane*>(args.inputs[i]) + args.begin;
  for (int k = 0; k < num_outputs; ++k) outputs[k] = static_cast<Lane*>(args.outputs[k]) + args.begin;

  std::size_t e = 0;
  const std::size_t step = 4 * lanes, end = args.count / step * step;
  for (; e < end; e += step) {
    V acc0, acc1, acc2, acc3;
    int i = 0;
    if (first) {
      const Lane* input = inputs[i++] + e;
      acc0 = prescaler.Scale(Element::Load(d, input));
      acc1 = prescaler.Scale(Element::Load(d, input + lanes));
      acc2 = prescaler.Scale(Element::Load(d, input + 2 * lanes));
      acc3 = prescaler.Scale(Element::Load(d, input + 3 * lanes));
    } else {
      acc0 = hn::LoadU(d, args.carry + e);
      acc1 = hn::LoadU(d, args.carry + e + lanes);
      acc2 = hn::LoadU(d, args.carry + e + 2 * lanes);
      acc3 = hn::LoadU(d, args.carry + e + 3 * lanes);
    }
    for (; i < num_inputs; ++i) {
      const Lane* input = inputs[i] + e;
      acc0 = Op::Combine(d, acc0, prescaler.Scale(Element::Load(d, input)));
      acc1 = Op::Combine(d, acc1, prescaler.Scale(Element::Load(d, input + lanes)));
      acc2 = Op::Combine(d, acc2, prescaler.Scale(Element::Load(d, input + 2 * lanes)));
      acc3 = Op::Combine(d, acc3, prescaler.Scale(Element::Load(d, input + 3 * lanes)));
    }
    if (!last) {
      hn::StoreU(acc0, d, args.carry + e);
      hn::StoreU(acc1, d, args.carry + e + lanes);
      hn::StoreU(acc2, d, args.carry + e + 2 * lanes);
      hn::StoreU(acc3, d, args.carry + e + 3 * lanes);
      continue;
    }
    const auto packed0 = Element::Pack(d, finisher.Finish(d, acc0));
    const auto packed1 = Element::Pack(d, finisher.Finish(d, acc1));
    const auto packed2 = Element::Pack(d, finisher.Finish(d, acc2));
    const auto packed3 = Element::Pack(d, finisher.Finish(d, acc3));
    for (int k = 0; k < num_outputs; ++k) {
      Lane* output = outputs[k] + e;
      Put<Element, kStreams>(packed0, d, output);
      Put<Element, kStreams>(packed1, d, output + lanes);
      Put<Element, kStreams>(packed2, d, output + 2 * lanes);
      Put<Element, kStreams>(packed3, d, output + 3 * lanes);
    }
  }
  for (; e < args.count; e += lanes) {
    FoldVector<Element, Op, kScaled>(d, args, prescaler, finisher, e, HWY_MIN(lanes, args.count - e));
  }
}

// Folds elements [begin, begin + count), at most a block of them, group by group.
template <class Element, class Op, bool kScaled>
void FoldBlock(const KernelArgs& args, std::size_t begin, std::size_t count, typename Element::Acc* carry) {
  using Lane = typename Element::Lane;
  const int num_written = HWY_MIN(args.num_outputs, kMaxStreams);
  for (int i = 0; i < args.num_inputs; i += kMaxStreams) {
    const int group = HWY_MIN(args.num_inputs - i, kMaxStreams);
    const bool last = i + group == args.num_inputs;
    Fold<Element, Op, kScaled, false, kAny, kAny>(
        {args.inputs + i, group, args.outputs, num_written, args.factors, begin, count, carry, i == 0, last});
  }
  const Lane* result = static_cast<const Lane*>(args.outputs[0]) + begin;
  for (int k = num_written; k < args.num_outputs; ++k) {
    std::memcpy(static_cast<Lane*>(args.outputs[k]) + begin, result, count * sizeof(Lane));
  }
}

template <class Element, class Op, bool kScaled>
void FoldAll(const KernelArgs& args) {
  using Acc = typename Element::Acc;
  if (args.num_inputs <= kMaxStreams && args.num_outputs <= kMaxStreams) {
    const FoldArgs<Acc> fold = {args.inputs,  args.num_inputs,
                                args.outputs, args.num_outputs,
                                args.factors, 0,
                                args.count,   nullptr,
                                true,         true};
    if constexpr (Element::kHasFactors) {  // only floating-point types can be past the cache
      if (args.past_cache) {
        Fold<Element, Op, kScaled, true, kAny, kAny>(fold);
        hwy::FlushStream();
        return;
      }
    }
    const bool pair = args.num_inputs == 2 && args.num_outputs == 2;
    pair ? Fold<Element, Op, kScaled, false, 2, 2>(fold)
         : Fold<Element, Op, kScaled, false, kAny, kAny>(fold);
    return;
  }
  constexpr std::size_t kBlock = kBlockBytes / sizeof(Acc);
  HWY_ALIGN Acc carry[kBlock];
  for (std::size_t begin = 0; begin < args.count; begin += kBlock) {
    FoldBlock<Element, Op, kScaled>(args, begin, HWY_MIN(kBlock, args.count - begin), carry);
  }
}

template <class Element, class Op>
void RunKernel(const KernelArgs& args) {
  if constexpr (Element::kHasFactors) {
    if (IsScaled(args.factors)) return FoldAll<Element, Op, true>(args);
  }
  FoldAll<Element, Op, false>(args);
}

// Returns the kernel for `op`, given the Element that each operation works on.
template <class Sum, class Average, class Extremum, class Product>
Kernel ChooseKernel(ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum:
      return &RunKernel<Sum, AddOp>;
    case ReduceOp::kAverage:
      return &RunKernel<Average, AddOp>;
    case ReduceOp::kMin:
      return &RunKernel<Extremum, MinOp>;
    case ReduceOp::kMax:
      return &RunKernel<Extremum, MaxOp>;
    case ReduceOp::kProduct:
      return &RunKernel<Product, MulOp>;
  }
  return nullptr;
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace tf_smddp
HWY_AFTER_NAMESPACE();

#endif  // TF_SMDDP_KERNELS_REDUCE_FOLD_INL_H_

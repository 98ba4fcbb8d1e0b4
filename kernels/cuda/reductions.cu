// The kernels that reduce: each makes one or two outputs of several inputs, for many tensors in one launch.
// Block (x, y) makes tile x of row y; kReduceThreads threads.
//
// The results have the bits of kernels/reduce: inputs are combined in their order, each step is rounded once,
// 16-bit floats are accumulated as float32, averages of integers are those of the exact sum, truncated, and
// all NaNs have one pattern. So products and sums are written as functions that the compiler does not fuse.
#include "kernels/cuda/half_formats.h"
#include "kernels/cuda/reduce_table.h"

namespace tf_smddp::cuda {
namespace {

// What is done to accumulators.
template <typename T>
struct ArithmeticOf {
  using Bits = unsigned long long;  // wraps where T does
  static __device__ T Add(T a, T b) { return static_cast<T>(static_cast<Bits>(a) + static_cast<Bits>(b)); }
  static __device__ T Multiply(T a, T b) {
    return static_cast<T>(static_cast<Bits>(a) * static_cast<Bits>(b));
  }
  static __device__ T Min(T a, T b) { return b < a ? b : a; }
  static __device__ T Max(T a, T b) { return b > a ? b : a; }
};

// A NaN stays, and of equal values the earlier one does.
template <typename T>
struct Floating {
  static __device__ T Min(T a, T b) { return b < a || b != b ? b : a; }
  static __device__ T Max(T a, T b) { return b > a || b != b ? b : a; }
};

template <>
struct ArithmeticOf<float> : Floating<float> {
  static __device__ float Add(float a, float b) { return __fadd_rn(a, b); }
  static __device__ float Multiply(float a, float b) { return __fmul_rn(a, b); }
  static __device__ float Divide(float a, float b) { return __fdiv_rn(a, b); }
  static __device__ float Nan() { return __uint_as_float(0x7fc00000); }
};

template <>
struct ArithmeticOf<double> : Floating<double> {
  static __device__ double Add(double a, double b) { return __dadd_rn(a, b); }
  static __device__ double Multiply(double a, double b) { return __dmul_rn(a, b); }
  static __device__ double Divide(double a, double b) { return __ddiv_rn(a, b); }
  static __device__ double Nan() { return __longlong_as_double(0x7ff8000000000000); }
};

// How the elements of a type become accumulators, and results. Factors are set for inexact types alone.
template <typename T>
struct IntegerElement {
  using Lane = T;
  using Acc = T;
  using Arithmetic = ArithmeticOf<T>;
  static __device__ Acc Load(Lane value, const ReduceRow&) { return value; }
  static __device__ Lane Store(Acc value, const ReduceRow&) { return value; }
};

// The average of integers of 32 bits or less.
template <typename T>
struct AverageElement {
  using Lane = T;
  using Acc = long long;
  using Arithmetic = ArithmeticOf<long long>;
  static __device__ Acc Load(Lane value, const ReduceRow&) { return value; }
  static __device__ Lane Store(Acc value, const ReduceRow& row) {
    return static_cast<Lane>(value / row.divisor);
  }
};

// Of accumulators that are floats: the factors.
template <typename T>
struct Scaled {
  using Acc = T;
  using Arithmetic = ArithmeticOf<T>;
  static __device__ T Prescale(T value, const ReduceRow& row) {
    return Arithmetic::Multiply(value, static_cast<T>(row.prescale));
  }
  static __device__ T Finish(T value, const ReduceRow& row) {
    if (row.divisor != 1) value = Arithmetic::Divide(value, static_cast<T>(row.divisor));
    return Arithmetic::Multiply(value, static_cast<T>(row.postscale));
  }
};

template <typename T>
struct FloatElement : Scaled<T> {
  using Lane = T;
  static __device__ T Load(T value, const ReduceRow& row) { return Scaled<T>::Prescale(value, row); }
  static __device__ T Store(T value, const ReduceRow& row) {
    value = Scaled<T>::Finish(value, row);
    return value == value ? value : ArithmeticOf<T>::Nan();
  }
};

template <typename Format>
struct HalfElement : Scaled<float> {
  using Lane = unsigned short;
  static __device__ float Load(unsigned short bits, const ReduceRow& row) {
    return Prescale(Format::ToFloat(bits), row);
  }
  static __device__ unsigned short Store(float value, const ReduceRow& row) {
    return Format::FromFloat(Finish(value, row));
  }
};

// As many elements as one load moves: four, or 16 bytes.
template <typename Lane, unsigned kCount>
struct alignas(kCount * sizeof(Lane)) Several {
  Lane at[kCount];
};

template <unsigned kCount, typename Acc, typename Function>
__device__ void ForEach(Acc* acc, const Acc* values, Function function) {
#pragma unroll
  for (unsigned j = 0; j < kCount; ++j) acc[j] = function(acc[j], values[j]);
}

template <typename Arithmetic, unsigned kCount, typename Acc>
__device__ void Combine(RowOp op, Acc* acc, const Acc* values) {
  switch (op) {
    case RowOp::kAdd:
      return ForEach<kCount>(acc, values, [](Acc a, Acc b) { return Arithmetic::Add(a, b); });
    case RowOp::kMin:
      return ForEach<kCount>(acc, values, [](Acc a, Acc b) { return Arithmetic::Min(a, b); });
    case RowOp::kMax:
      return ForEach<kCount>(acc, values, [](Acc a, Acc b) { return Arithmetic::Max(a, b); });
    case RowOp::kMultiply:
      return ForEach<kCount>(acc, values, [](Acc a, Acc b) { return Arithmetic::Multiply(a, b); });
  }
}

template <typename Element, unsigned kCount>
__device__ void Load(const ReduceRow& row, int input, unsigned long long element,
                     typename Element::Acc* values) {
  using Lane = typename Element::Lane;
  const auto loaded =
      *reinterpret_cast<const Several<Lane, kCount>*>(static_cast<const Lane*>(row.inputs[input]) + element);
#pragma unroll
  for (unsigned j = 0; j < kCount; ++j) values[j] = Element::Load(loaded.at[j], row);
}

// Reduces `units` units of kCount elements, from element `begin` on.
template <typename Element, unsigned kCount>
__device__ void ReduceUnits(const ReduceRow& row, unsigned long long begin, unsigned units) {
  using Lane = typename Element::Lane;
  using Unit = Several<Lane, kCount>;
#pragma unroll 1
  for (unsigned i = threadIdx.x; i < units; i += kReduceThreads) {
    const unsigned long long element = begin + i * kCount;
    typename Element::Acc acc[kCount], values[kCount];
    Load<Element, kCount>(row, 0, element, acc);
#pragma unroll 1
    for (int k = 1; k < row.num_inputs; ++k) {
      Load<Element, kCount>(row, k, element, values);
      Combine<typename Element::Arithmetic, kCount>(row.op, acc, values);
    }
    Unit result;
#pragma unroll
    for (unsigned j = 0; j < kCount; ++j) result.at[j] = Element::Store(acc[j], row);
#pragma unroll 1
    for (int k = 0; k < row.num_outputs; ++k) {
      *reinterpret_cast<Unit*>(static_cast<Lane*>(row.outputs[k]) + element) = result;
    }
  }
}

__device__ bool AreAligned(const ReduceRow& row, unsigned long long bytes) {
  unsigned long long all = 0;
#pragma unroll 1
  for (int k = 0; k < row.num_inputs; ++k) all |= reinterpret_cast<unsigned long long>(row.inputs[k]);
#pragma unroll 1
  for (int k = 0; k < row.num_outputs; ++k) all |= reinterpret_cast<unsigned long long>(row.outputs[k]);
  return all % bytes == 0;
}

template <typename Element>
__device__ void ReduceTile(const ReduceRow& row) {
  using Lane = typename Element::Lane;
  constexpr unsigned kCount = sizeof(Lane) == 8 ? 2 : 4;
  const unsigned long long begin = blockIdx.x * kReduceTile;
  if (begin >= row.count) return;
  const auto count = static_cast<unsigned>(min(row.count - begin, kReduceTile));
  unsigned done = 0;
  if (AreAligned(row, kCount * sizeof(Lane))) {
    ReduceUnits<Element, kCount>(row, begin, count / kCount);
    done = count / kCount * kCount;
  }
  ReduceUnits<Element, 1>(row, begin + done, count - done);
}

template <typename T>
__device__ void ReduceIntegers(const ReduceRow& row) {
  if (row.divisor == 1) {
    ReduceTile<IntegerElement<T>>(row);
  } else {
    ReduceTile<AverageElement<T>>(row);
  }
}

}  // namespace

#define KERNEL(name, reduce) \
  extern "C" __global__ void smddp_reduce_##name(const ReduceTable table) { reduce(table.rows[blockIdx.y]); }
KERNEL(float16, ReduceTile<HalfElement<Float16>>)
KERNEL(bfloat16, ReduceTile<HalfElement<BFloat16>>)
KERNEL(float32, ReduceTile<FloatElement<float>>)
KERNEL(float64, ReduceTile<FloatElement<double>>)
KERNEL(int32, ReduceIntegers<int>)
KERNEL(int64, ReduceTile<IntegerElement<long long>>)
KERNEL(uint8, ReduceIntegers<unsigned char>)
KERNEL(int8, ReduceIntegers<signed char>)
KERNEL(int16, ReduceIntegers<short>)
KERNEL(uint16, ReduceIntegers<unsigned short>)
KERNEL(uint32, ReduceIntegers<unsigned>)
KERNEL(uint64, ReduceTile<IntegerElement<unsigned long long>>)
#undef KERNEL

}  // namespace tf_smddp::cuda

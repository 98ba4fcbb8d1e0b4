#include "tests/pretend_gpu/nccl/reduce.h"

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "tests/pretend_gpu/nccl/api/nccl.h"
#include "tests/pretend_gpu/nccl/types.h"

namespace pretend_gpu::nccl {
namespace {

// In what the elements of a type are computed: integers without a sign, since they wrap around.
template <class T>
struct Wide {
  using Type = std::conditional_t<std::is_same_v<T, double>, double, float>;
};
template <>
struct Wide<std::int8_t> {
  using Type = std::uint32_t;
};
template <>
struct Wide<std::uint8_t> {
  using Type = std::uint32_t;
};
template <>
struct Wide<std::int32_t> {
  using Type = std::uint32_t;
};
template <>
struct Wide<std::uint32_t> {
  using Type = std::uint32_t;
};
template <>
struct Wide<std::int64_t> {
  using Type = std::uint64_t;
};
template <>
struct Wide<std::uint64_t> {
  using Type = std::uint64_t;
};

template <class T>
T Add(T a, T b) {
  using W = typename Wide<T>::Type;
  return static_cast<T>(static_cast<W>(a) + static_cast<W>(b));
}

template <class T>
T Multiply(T a, T b) {
  using W = typename Wide<T>::Type;
  return static_cast<T>(static_cast<W>(a) * static_cast<W>(b));
}

// A type that compares as T does.
template <class T>
auto Comparable(T value) {
  if constexpr (std::is_arithmetic_v<T>) {
    return value;
  } else {
    return static_cast<float>(value);
  }
}

template <class T>
T Larger(T a, T b) {
  const auto x = Comparable(a), y = Comparable(b);
  if (x != x) return a;
  if (y != y) return b;
  return x < y ? b : a;
}

template <class T>
T Smaller(T a, T b) {
  const auto x = Comparable(a), y = Comparable(b);
  if (x != x) return a;
  if (y != y) return b;
  return y < x ? b : a;
}

template <class T>
T Apply(int op, T a, T b) {
  switch (op) {
    case ncclProd:
      return Multiply(a, b);
    case ncclMax:
      return Larger(a, b);
    case ncclMin:
      return Smaller(a, b);
    default:
      return Add(a, b);
  }
}

}  // namespace

void Scale(int type, void* data, std::size_t count, const Scalar& scalar) {
  WithType(type, [&](auto factor) {
    using T = decltype(factor);
    std::memcpy(&factor, scalar.data(), sizeof(factor));
    T* elements = static_cast<T*>(data);
    for (std::size_t i = 0; i < count; i++) elements[i] = Multiply(elements[i], factor);
  });
}

void Combine(int type, int op, void* total, const void* operand, std::size_t count) {
  WithType(type, [&](auto none) {
    using T = decltype(none);
    T* totals = static_cast<T*>(total);
    const T* operands = static_cast<const T*>(operand);
    for (std::size_t i = 0; i < count; i++) totals[i] = Apply(op, totals[i], operands[i]);
  });
}

void Divide(int type, void* data, std::size_t count, int ranks) {
  WithType(type, [&](auto none) {
    using T = decltype(none);
    if constexpr (std::is_integral_v<T>) {
      T* elements = static_cast<T*>(data);
      for (std::size_t i = 0; i < count; i++)
        elements[i] = static_cast<T>(elements[i] / static_cast<T>(ranks));
    }
  });
}

Scalar Reciprocal(int type, int ranks) {
  Scalar scalar{};
  WithType(type, [&](auto none) {
    using T = decltype(none);
    if constexpr (!std::is_integral_v<T>) {
      using W = typename Wide<T>::Type;
      const T value = static_cast<T>(W{1} / static_cast<W>(ranks));
      std::memcpy(scalar.data(), &value, sizeof(value));
    }
  });
  return scalar;
}

}  // namespace pretend_gpu::nccl

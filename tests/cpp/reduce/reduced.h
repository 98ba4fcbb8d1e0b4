// Reduced returns the reduction of a list of values, for tests of single elements.
#ifndef TF_SMDDP_TESTS_CPP_REDUCE_REDUCED_H_
#define TF_SMDDP_TESTS_CPP_REDUCE_REDUCED_H_

#include <gtest/gtest.h>

#include <complex>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <vector>

#include "kernels/reduce/targets.h"

namespace tf_smddp {

template <typename T>
constexpr DType DTypeOf() {
  if constexpr (std::is_same_v<T, float>) return DType::kFloat32;
  if constexpr (std::is_same_v<T, double>) return DType::kFloat64;
  if constexpr (std::is_same_v<T, std::int8_t>) return DType::kInt8;
  if constexpr (std::is_same_v<T, std::int16_t>) return DType::kInt16;
  if constexpr (std::is_same_v<T, std::int32_t>) return DType::kInt32;
  if constexpr (std::is_same_v<T, std::int64_t>) return DType::kInt64;
  if constexpr (std::is_same_v<T, std::uint8_t>) return DType::kUInt8;
  if constexpr (std::is_same_v<T, std::uint16_t>) return DType::kUInt16;
  if constexpr (std::is_same_v<T, std::uint32_t>) return DType::kUInt32;
  if constexpr (std::is_same_v<T, std::uint64_t>) return DType::kUInt64;
  if constexpr (std::is_same_v<T, std::complex<float>>) return DType::kComplex64;
  if constexpr (std::is_same_v<T, std::complex<double>>) return DType::kComplex128;
}

inline std::uint32_t BitsOf(float value) {
  std::uint32_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  return bits;
}

inline std::uint64_t BitsOf(double value) {
  std::uint64_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  return bits;
}

inline float FromBits(std::uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

// The canonical NaNs.
inline constexpr std::uint32_t kNaN32 = 0x7FC00000u;
inline constexpr std::uint64_t kNaN64 = 0x7FF8000000000000u;

// Reduces one element, given its inputs. It is repeated over a few vectors and a tail, which must agree.
template <typename T>
T Reduced(const ReduceTargetInfo& target, ReduceOp op, const std::vector<T>& values, double prescale = 1,
          double postscale = 1) {
  constexpr std::size_t kCount = 333;
  std::vector<std::vector<T>> inputs;
  std::vector<const void*> in;
  for (T value : values) inputs.emplace_back(kCount, value);
  for (const std::vector<T>& input : inputs) in.push_back(input.data());
  std::vector<T> result(kCount);
  void* out = result.data();
  ReduceOn(target, {DTypeOf<T>(), op, prescale, postscale}, in.data(), static_cast<int>(in.size()), &out, 1,
           kCount);
  for (const T& r : result) EXPECT_EQ(std::memcmp(&r, &result[0], sizeof(T)), 0);
  return result[0];
}

}  // namespace tf_smddp

#endif  // TF_SMDDP_TESTS_CPP_REDUCE_REDUCED_H_

// A reference implementation of Reduce that shares no code with it: one element at a time, in plain C++.
#ifndef TF_SMDDP_TESTS_CPP_REDUCE_REFERENCE_H_
#define TF_SMDDP_TESTS_CPP_REDUCE_REFERENCE_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/reduce/reduce.h"

namespace tf_smddp {

// A binary floating-point format of 16 bits.
struct HalfFormat {
  int mantissa_bits;
  int exponent_bits;
};
inline constexpr HalfFormat kFloat16Format = {10, 5};
inline constexpr HalfFormat kBFloat16Format = {7, 8};

// The value of a pattern; exact.
double DecodeHalf(HalfFormat format, std::uint16_t bits);

// The nearest pattern, ties to even; NaN gives the positive quiet NaN.
std::uint16_t EncodeHalf(HalfFormat format, double value);

// inputs[i] are the bytes of `count` elements. Returns the bytes of the result.
std::vector<unsigned char> ReferenceReduce(const Reduction& reduction,
                                           const std::vector<std::vector<unsigned char>>& inputs,
                                           std::size_t count);

}  // namespace tf_smddp

#endif  // TF_SMDDP_TESTS_CPP_REDUCE_REFERENCE_H_

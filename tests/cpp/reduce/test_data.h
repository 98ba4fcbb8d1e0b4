// Inputs for the reduce tests, and names for the parameters of those tests.
#ifndef TF_SMDDP_TESTS_CPP_REDUCE_TEST_DATA_H_
#define TF_SMDDP_TESTS_CPP_REDUCE_TEST_DATA_H_

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <ostream>
#include <random>
#include <vector>

#include "kernels/common/types.h"
#include "kernels/reduce/targets.h"

namespace tf_smddp {

// GoogleTest prints parameters with these functions.
inline void PrintTo(const ReduceTargetInfo& target, std::ostream* os) { *os << target.name; }
inline void PrintTo(DType dtype, std::ostream* os) { *os << DTypeName(dtype); }

// `count` elements. Half of them are of ordinary size, half are random bits: for floats, those include
// subnormals, infinities and NaNs with all kinds of payloads.
inline std::vector<unsigned char> RandomElements(DType dtype, std::size_t count, std::mt19937_64* rng) {
  if (dtype == DType::kComplex64) return RandomElements(DType::kFloat32, 2 * count, rng);
  if (dtype == DType::kComplex128) return RandomElements(DType::kFloat64, 2 * count, rng);
  const std::size_t element_bytes = DTypeBytes(dtype);
  std::vector<unsigned char> bytes(count * element_bytes);
  for (std::size_t e = 0; e < count; ++e) {
    const std::uint64_t random = (*rng)();
    const bool ordinary = ((*rng)() & 1) != 0;
    const double small = static_cast<double>(random % 20001) / 1000.0 - 10.0;
    unsigned char* at = bytes.data() + e * element_bytes;
    if (dtype == DType::kBool) {
      *at = random & 1;
    } else if (ordinary && dtype == DType::kFloat32) {
      const float value = static_cast<float>(small);
      std::memcpy(at, &value, sizeof(value));
    } else if (ordinary && dtype == DType::kFloat64) {
      std::memcpy(at, &small, sizeof(small));
    } else if (ordinary && (dtype == DType::kFloat16 || dtype == DType::kBFloat16)) {
      // Exponents around that of 1 (15 and 127), random mantissas and signs.
      const std::uint64_t exponent = dtype == DType::kFloat16 ? 12 + random % 6 : 124 + random % 6;
      const int mantissa_bits = dtype == DType::kFloat16 ? 10 : 7;
      const auto value = static_cast<std::uint16_t>((random >> 32 & ((1 << mantissa_bits) - 1)) |
                                                    exponent << mantissa_bits | (random >> 63) << 15);
      std::memcpy(at, &value, sizeof(value));
    } else {
      std::memcpy(at, &random, element_bytes);
    }
  }
  return bytes;
}

}  // namespace tf_smddp

#endif  // TF_SMDDP_TESTS_CPP_REDUCE_TEST_DATA_H_

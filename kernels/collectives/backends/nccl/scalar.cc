#include "kernels/collectives/backends/nccl/scalar.h"

#include <cmath>
#include <cstring>

namespace tf_smddp::nccl {
namespace {

// A type of the host.
template <typename T>
bool Native(double value, std::uint64_t* bits) {
  const T rounded = static_cast<T>(value);
  if (value != 0 && !std::isnormal(rounded)) return false;
  *bits = 0;
  std::memcpy(bits, &rounded, sizeof rounded);
  return true;
}

// A type of 16 bits. The fraction of its pattern counts units of the last place, so that a carry from
// rounding gives the next exponent by itself.
bool Half(int mantissa_bits, int exponent_bits, double value, std::uint64_t* bits) {
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const std::uint64_t sign = std::signbit(value) ? 0x8000 : 0;
  if (value == 0) {
    *bits = sign;
    return true;
  }
  if (!std::isfinite(value)) return false;
  const int exponent = std::ilogb(value);
  if (exponent < 1 - bias || exponent > bias) return false;
  const double units = std::nearbyint(std::ldexp(std::fabs(value), mantissa_bits - exponent));
  const auto pattern =
      static_cast<std::uint64_t>(units) + (static_cast<std::uint64_t>(exponent + bias - 1) << mantissa_bits);
  const std::uint64_t infinity = ((std::uint64_t{1} << exponent_bits) - 1) << mantissa_bits;
  if (pattern >= infinity) return false;
  *bits = sign | pattern;
  return true;
}

}  // namespace

bool ScalarOf(DataType type, double value, std::uint64_t* bits) {
  switch (type) {
    case DataType::kFloat16:
      return Half(10, 5, value, bits);
    case DataType::kBFloat16:
      return Half(7, 8, value, bits);
    case DataType::kFloat32:
      return Native<float>(value, bits);
    case DataType::kFloat64:
      return Native<double>(value, bits);
    default:
      return false;
  }
}

}  // namespace tf_smddp::nccl

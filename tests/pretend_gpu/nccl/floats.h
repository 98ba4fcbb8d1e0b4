// The two floating-point types of 16 bits that C++17 lacks. Arithmetic is that of float, and each result is
// rounded to the nearest value, to an even one in the middle.
#ifndef TF_SMDDP_TESTS_PRETEND_GPU_NCCL_FLOATS_H_
#define TF_SMDDP_TESTS_PRETEND_GPU_NCCL_FLOATS_H_

#include <cmath>
#include <cstdint>
#include <cstring>

namespace pretend_gpu::nccl {

inline std::uint32_t BitsOf(float value) {
  std::uint32_t bits = 0;
  std::memcpy(&bits, &value, sizeof(bits));
  return bits;
}

inline float FloatOf(std::uint32_t bits) {
  float value = 0;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

// IEEE half: 1 bit of sign, 5 of exponent, 10 of fraction.
struct Half {
  Half() = default;
  explicit Half(float value) : bits(Round(value)) {}
  explicit operator float() const {
    const std::uint32_t sign = std::uint32_t{bits & 0x8000u} << 16;
    const std::uint32_t exponent = (bits >> 10) & 0x1F, fraction = bits & 0x3FF;
    if (exponent == 0) return (sign != 0 ? -1.0f : 1.0f) * std::ldexp(static_cast<float>(fraction), -24);
    if (exponent == 0x1F) return FloatOf(sign | 0x7F800000 | (fraction << 13));
    return FloatOf(sign | ((exponent + 112) << 23) | (fraction << 13));
  }

  std::uint16_t bits = 0;

 private:
  static std::uint16_t Round(float value) {
    constexpr std::uint32_t kInfinity = 0x7F800000, kTooLarge = 0x47800000, kLeastNormal = 0x38800000;
    const std::uint32_t sign = (BitsOf(value) >> 16) & 0x8000;
    const std::uint32_t magnitude = BitsOf(value) & 0x7FFFFFFF;
    std::uint32_t half = 0;
    if (magnitude > kInfinity) {
      half = 0x7E00;
    } else if (magnitude >= kTooLarge) {
      half = 0x7C00;
    } else if (magnitude < kLeastNormal) {
      half = static_cast<std::uint32_t>(std::nearbyint(std::ldexp(FloatOf(magnitude), 24)));
    } else {
      // A carry out of the fraction goes to the exponent, as it should.
      half = (magnitude - (112u << 23) + 0xFFF + ((magnitude >> 13) & 1)) >> 13;
    }
    return static_cast<std::uint16_t>(sign | half);
  }
};

// The upper half of a float.
struct Bfloat16 {
  Bfloat16() = default;
  explicit Bfloat16(float value) : bits(Round(value)) {}
  explicit operator float() const { return FloatOf(std::uint32_t{bits} << 16); }

  std::uint16_t bits = 0;

 private:
  static std::uint16_t Round(float value) {
    const std::uint32_t all = BitsOf(value);
    if (value != value) return static_cast<std::uint16_t>((all >> 16) | 0x40);
    return static_cast<std::uint16_t>((all + 0x7FFF + ((all >> 16) & 1)) >> 16);
  }
};

}  // namespace pretend_gpu::nccl

#endif  // TF_SMDDP_TESTS_PRETEND_GPU_NCCL_FLOATS_H_

// The formats of 16 bits, in device code. Conversions round to nearest even, and NaNs get the pattern that
// kernels/reduce gives them. CUDA C++ alone includes it.
#ifndef TF_SMDDP_KERNELS_CUDA_HALF_FORMATS_H_
#define TF_SMDDP_KERNELS_CUDA_HALF_FORMATS_H_

namespace tf_smddp::cuda {

struct Float16 {
  static __device__ unsigned short FromFloat(float value) {
    if (value != value) return 0x7e00;
    unsigned short bits;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
    return bits;
  }
  static __device__ float ToFloat(unsigned short bits) {
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
    return value;
  }
};

// Since sm_80, there are instructions for it; this is for all.
struct BFloat16 {
  static __device__ unsigned short FromFloat(float value) {
    const unsigned bits = __float_as_uint(value);
    if (value != value) return 0x7fc0;
    return static_cast<unsigned short>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
  }
  static __device__ float ToFloat(unsigned short bits) {
    return __uint_as_float(static_cast<unsigned>(bits) << 16);
  }
};

}  // namespace tf_smddp::cuda

#endif  // TF_SMDDP_KERNELS_CUDA_HALF_FORMATS_H_

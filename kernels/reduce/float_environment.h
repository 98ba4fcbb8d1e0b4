// ScopedIeeeEnvironment: sets IEEE rounding and keeps subnormals during a scope, whatever the thread had set.
//
// TensorFlow's executor threads flush subnormals to zero, and the engine's threads do not. A reduction may
// run on either, and must give the same bits on both.
#ifndef TF_SMDDP_KERNELS_REDUCE_FLOAT_ENVIRONMENT_H_
#define TF_SMDDP_KERNELS_REDUCE_FLOAT_ENVIRONMENT_H_

#if defined(__SSE__)
#include <xmmintrin.h>
#elif defined(__aarch64__)
#include <cstdint>
#else
#include <cfenv>
#endif

namespace tf_smddp {

#if defined(__SSE__)

class ScopedIeeeEnvironment {
 public:
  ScopedIeeeEnvironment() : saved_(_mm_getcsr()), differs_((saved_ & kControlBits) != kIeee) {
    if (differs_) _mm_setcsr(kIeee);  // writing stalls the pipeline, so it is done only when needed
  }
  ~ScopedIeeeEnvironment() {
    if (differs_) _mm_setcsr(saved_);
  }
  ScopedIeeeEnvironment(const ScopedIeeeEnvironment&) = delete;
  ScopedIeeeEnvironment& operator=(const ScopedIeeeEnvironment&) = delete;

 private:
  static constexpr unsigned kControlBits = 0xFFC0;  // everything except the sticky exception flags
  static constexpr unsigned kIeee = 0x1F80;         // nearest even, subnormals kept, no traps
  const unsigned saved_;
  const bool differs_;
};

#elif defined(__aarch64__)

class ScopedIeeeEnvironment {
 public:
  ScopedIeeeEnvironment() {
    asm volatile("mrs %0, fpcr" : "=r"(saved_));
    if (saved_ != 0) Write(0);  // 0: nearest even, subnormals kept, no traps
  }
  ~ScopedIeeeEnvironment() {
    if (saved_ != 0) Write(saved_);
  }
  ScopedIeeeEnvironment(const ScopedIeeeEnvironment&) = delete;
  ScopedIeeeEnvironment& operator=(const ScopedIeeeEnvironment&) = delete;

 private:
  static void Write(std::uint64_t value) { asm volatile("msr fpcr, %0" : : "r"(value)); }
  std::uint64_t saved_;
};

#else

class ScopedIeeeEnvironment {
 public:
  ScopedIeeeEnvironment() {
    std::fegetenv(&saved_);
    std::fesetenv(FE_DFL_ENV);
  }
  ~ScopedIeeeEnvironment() { std::fesetenv(&saved_); }
  ScopedIeeeEnvironment(const ScopedIeeeEnvironment&) = delete;
  ScopedIeeeEnvironment& operator=(const ScopedIeeeEnvironment&) = delete;

 private:
  std::fenv_t saved_;
};

#endif

}  // namespace tf_smddp

#endif  // TF_SMDDP_KERNELS_REDUCE_FLOAT_ENVIRONMENT_H_

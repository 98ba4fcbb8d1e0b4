// Highway's settings, and the table that lists one function per compiled instruction set.
//
// Place in the stack: the first include of every kernel file of kernels/reduce, before any Highway header.
// Not here: which instruction set this machine uses (targets.h).
#ifndef TF_SMDDP_KERNELS_REDUCE_HIGHWAY_CONFIG_H_
#define TF_SMDDP_KERNELS_REDUCE_HIGHWAY_CONFIG_H_

// The result must have the same bits on every instruction set, so nothing may reorder or skip IEEE
// arithmetic.
#if defined(__FAST_MATH__) || (defined(__FINITE_MATH_ONLY__) && __FINITE_MATH_ONLY__)
#error "kernels/reduce needs IEEE arithmetic: build it without -ffast-math, -Ofast and -ffinite-math-only."
#endif

// There are few targets, to keep compile time and size low. CPUs with SSSE3 and no more are from before 2008;
// AVX3_DL adds nothing that a sum could use; SVE vectors have no size at compile time, on which the loops
// rely.
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_AVX3_DL | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)

// The fallback is HWY_SCALAR with every compiler. Some compilers would get HWY_EMU128 by default, and then
// the fallback that the tests run would not be the one that users run.
#define HWY_BROKEN_EMU128 1

// Highway's debug checks call hwy::Abort, which is in libhwy. We use its headers only: a wheel must not
// depend on a library that few machines have.
#define HWY_IS_DEBUG_BUILD 0

// Initialises an array indexed by TargetId (kernel.h) with N_<TARGET>::function, or null where the target is
// not compiled. kFallback is never null: it is what the compiler's own flags allow (HWY_SCALAR on plain
// x86-64). HWY_EXPORT would do the same, and choose the target as well, but it calls libhwy.
#define TF_SMDDP_PER_TARGET(function)                                               \
  {HWY_CHOOSE_AVX3(function), HWY_CHOOSE_AVX2(function), HWY_CHOOSE_SSE4(function), \
   HWY_CHOOSE_NEON(function), HWY_CHOOSE_FALLBACK(function)}

#endif  // TF_SMDDP_KERNELS_REDUCE_HIGHWAY_CONFIG_H_

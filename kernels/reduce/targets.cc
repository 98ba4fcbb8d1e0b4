#include "kernels/reduce/targets.h"

#if defined(__x86_64__) || defined(__i386__)
#include <cpuid.h>
#endif

#include "kernels/reduce/highway_config.h"

namespace tf_smddp {
namespace {

// Indexed by TargetId.
constexpr const char* kTargetNames[kNumTargets] = {"AVX3", "AVX2", "SSE4", "NEON", "SCALAR"};

#if defined(__x86_64__) || defined(__i386__)
// It asks the CPU itself, because not every compiler's __builtin_cpu_supports knows "f16c".
bool CpuHasF16c() {
  unsigned eax, ebx, ecx, edx;
  return __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx & bit_F16C) != 0;
}
#endif

// Tells whether this CPU and operating system run what the compiler may emit for Highway's target. The lists
// repeat HWY_TARGET_STR_* of hwy/ops/set_macros-inl.h.
bool CpuRuns([[maybe_unused]] TargetId target) {
#if defined(__x86_64__) || defined(__i386__)
  const bool sse4 = __builtin_cpu_supports("ssse3") && __builtin_cpu_supports("sse4.1") &&
                    __builtin_cpu_supports("sse4.2") && __builtin_cpu_supports("pclmul") &&
                    __builtin_cpu_supports("aes");
  const bool avx2 = sse4 && __builtin_cpu_supports("avx") && __builtin_cpu_supports("avx2") &&
                    __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2") &&
                    __builtin_cpu_supports("fma") && CpuHasF16c();
  const bool avx3 = avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
                    __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw");
  if (target == kSse4) return sse4;
  if (target == kAvx2) return avx2;
  if (target == kAvx3) return avx3;
#endif
  return true;  // elsewhere a kernel is compiled only for what every CPU of the architecture has
}

}  // namespace

std::vector<ReduceTargetInfo> RunnableReduceTargets() {
  std::vector<ReduceTargetInfo> targets;
  for (int i = 0; i < kNumTargets; ++i) {
    const auto id = static_cast<TargetId>(i);
    // All files are compiled for the same targets, so any of them can be asked.
    if (kFindFloatKernel[id] == nullptr || !CpuRuns(id)) continue;
    // Where the compiler's flags allow a vector target for all code (-march=native, or ARM), the fallback is
    // that same target once more.
    bool listed = false;
    for (const ReduceTargetInfo& target : targets) {
      listed = listed || kFindFloatKernel[target.id] == kFindFloatKernel[id];
    }
    if (!listed) targets.push_back({kTargetNames[id], id});
  }
  return targets;
}

// The choice cannot change while the process runs, so it is made once.
const ReduceTargetInfo& BestReduceTarget() {
  static const ReduceTargetInfo best = RunnableReduceTargets().front();
  return best;
}

}  // namespace tf_smddp

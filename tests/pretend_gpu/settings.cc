#include "tests/pretend_gpu/settings.h"

#include "tests/pretend_gpu/environment.h"

namespace pretend_gpu {

const Settings& GetSettings() {
  static const Settings* settings = new Settings{
      static_cast<int>(NumberVariable("PRETEND_GPU_DEVICES", 1, 0, 16)),
      static_cast<int>(NumberVariable("PRETEND_GPU_SLICES", 1, 1, 16)),
      static_cast<std::size_t>(NumberVariable("PRETEND_GPU_MEMORY_MB", 2048, 1, 1 << 20)) << 20,
      TextVariable("PRETEND_GPU_POLICY", "random"),
      static_cast<std::uint64_t>(NumberVariable("PRETEND_GPU_SEED", 1, 0, 1L << 60)),
      NumberVariable("PRETEND_GPU_DELAY_US", 300, 0, 10'000'000),
      NumberVariable("PRETEND_GPU_LAZY_US", 5000, 0, 1L << 50),
      NumberVariable("PRETEND_GPU_PACE_US", 10'000, 0, 10'000'000),
      TextVariable("PRETEND_GPU_TRACE", ""),
      TextVariable("PRETEND_GPU_KERNELS", ""),
      TextVariable("PRETEND_GPU_WAITS", ""),
      TextVariable("PRETEND_GPU_LEAVE_OUT", ""),
      static_cast<int>(NumberVariable("PRETEND_GPU_CUDNN", 9, 8, 9)),
      NumberVariable("PRETEND_GPU_LOG", 0, 0, 1) != 0,
      NumberVariable("PRETEND_GPU_CONTEXT_LOCK", 0, 0, 1) != 0,
  };
  return *settings;
}

}  // namespace pretend_gpu

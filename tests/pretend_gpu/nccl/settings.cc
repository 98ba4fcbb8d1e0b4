#include "tests/pretend_gpu/nccl/settings.h"

#include <cstdio>

#include "tests/pretend_gpu/diagnostics.h"
#include "tests/pretend_gpu/environment.h"

namespace pretend_gpu::nccl {
namespace {

void ReadFailure(Settings* settings) {
  const std::string text = TextVariable("PRETEND_GPU_NCCL_FAIL", "");
  if (text.empty()) return;
  char rest = 0;
  if (std::sscanf(text.c_str(), "%d:%lu%c", &settings->failing_rank, &settings->failing_call, &rest) != 2 ||
      settings->failing_rank < 0 || settings->failing_call < 1) {
    End("PRETEND_GPU_NCCL_FAIL is '%s', and must be a rank and a number of a call from 1 on, such as 0:3",
        text.c_str());
  }
}

Settings Read() {
  Settings settings{
      NumberVariable("PRETEND_GPU_NCCL_LIMIT_S", 60, 0, 1L << 30),
      NumberVariable("PRETEND_GPU_NCCL_PEERS_US", 10'000, 0, 1L << 50),
      NumberVariable("PRETEND_GPU_NCCL_CONCURRENT", 0, 0, 1) != 0,
      NumberVariable("PRETEND_GPU_NCCL_ROOM", 0, 0, 1) != 0,
      NumberVariable("PRETEND_GPU_NCCL_RING", 0, 0, 1) != 0,
      NumberVariable("PRETEND_GPU_NCCL_LEAKS", 0, 0, 1) != 0,
      NumberVariable("PRETEND_GPU_NCCL_SPOIL", 0, 0, 1) != 0,
      NumberVariable("PRETEND_GPU_NCCL_ABORT_MS", 0, 0, 1L << 30),
      static_cast<std::size_t>(NumberVariable("PRETEND_GPU_NCCL_MEMORY_MB", 0, 0, 1 << 20)) << 20,
      static_cast<std::size_t>(NumberVariable("PRETEND_GPU_NCCL_PEER_MEMORY_MB", 0, 0, 1 << 20)) << 20,
      -1,
      0,
      TextVariable("NCCL_HOSTID", ""),
      NumberVariable("NCCL_MULTI_RANK_GPU_ENABLE", 0, 0, 1) != 0,
  };
  ReadFailure(&settings);
  return settings;
}

}  // namespace

const Settings& GetSettings() {
  static const Settings* settings = new Settings(Read());
  return *settings;
}

}  // namespace pretend_gpu::nccl

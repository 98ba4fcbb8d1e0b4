#include "kernels/engine/job/environment.h"

#include <fcntl.h>
#include <sys/resource.h>

#include <algorithm>
#include <cerrno>

#include "kernels/common/system_call.h"
#include "kernels/common/thread.h"
#include "kernels/control/unix_socket.h"
#include "kernels/memory/memory_limits.h"

namespace tf_smddp {
namespace {

// Descriptors above this number are not counted: on a system without a limit that would take for ever.
constexpr rlim_t kLookedAtNumbers = 1 << 20;

rlim_t DescriptorLimit() {
  rlimit limit;
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return kLookedAtNumbers;
  return std::min(limit.rlim_cur, kLookedAtNumbers);
}

Status CheckDescriptors(int local_size) {
  const int needed = DescriptorsNeeded(local_size);
  const int free = FreeDescriptors(needed);
  if (free >= needed) return {};
  const auto limit = static_cast<long long>(DescriptorLimit());
  return Internal("init() of " + std::to_string(local_size) + " ranks needs " + std::to_string(needed) +
                  " file descriptors, but this process's limit of " + std::to_string(limit) + " leaves " +
                  std::to_string(free) + "; raise it to " + std::to_string(limit - free + needed) +
                  " or more (ulimit -n)");
}

// A call that is made with a bad descriptor fails with EBADF, unless it is refused.
bool PunchingHolesIsRefused() {
  return ::fallocate(-1, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 1) != 0 && CallIsRefused(errno);
}

}  // namespace

int FreeDescriptors(int most) {
  int free = 0;
  for (auto number = static_cast<int>(DescriptorLimit()); number-- > 0 && free < most;) {
    if (::fcntl(number, F_GETFD) < 0) ++free;
  }
  return free;
}

Status CheckEnvironment(const Config& config, std::uint64_t other_bytes, int threads,
                        Environment* environment) {
  Status status = CheckDescriptors(config.local_size);
  if (status.ok()) status = ProbeUnixSockets();
  if (status.ok()) status = ProbeThreads(threads);
  if (!status.ok()) return status;

  const MemoryLimits limits = ReadMemoryLimits();
  ArenaRequirements required;
  required.bytes = config.arena_bytes > 0 ? static_cast<std::uint64_t>(config.arena_bytes)
                                          : DefaultArenaBytes(PhysicalMemory(), limits, config.local_size);
  required.fixed = config.arena_bytes_given;
  required.least_bytes = kMinArenaBytes;
  required.local_size = config.local_size;
  required.other_bytes = other_bytes;
  std::string warning;
  status = ChooseArenaBytes(required, limits, &environment->arena_bytes, &warning);
  if (!status.ok()) return status;
  if (!warning.empty()) environment->warnings.push_back(warning);
  if (PunchingHolesIsRefused()) {
    environment->warnings.push_back(
        "fallocate is refused: memory that is no longer used stays with the job until its end; use a seccomp "
        "profile that allows fallocate");
  }
  return {};
}

}  // namespace tf_smddp

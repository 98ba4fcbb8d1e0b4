#include "kernels/memory/memory_limits.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <sstream>

namespace tf_smddp {
namespace {

constexpr std::uint64_t kArenaUnit = 64 << 10;

// Of address space, for all arenas of a host.
constexpr std::uint64_t kMostMapped = std::uint64_t{16} << 40;

// Of the address space that is left, as much is for the arenas; the rest is for TensorFlow.
constexpr std::uint64_t kArenaShare = 2;

std::uint64_t ResourceLimit(decltype(RLIMIT_AS) resource) {
  rlimit limit;
  if (::getrlimit(resource, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return kNoLimit;
  return limit.rlim_cur;
}

std::uint64_t AddressSpaceInUse() {
  std::ifstream file("/proc/self/statm");
  std::uint64_t pages = 0;
  file >> pages;
  return pages * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
}

std::string ReadAll(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

// The lowest limit in the files `name` of `group` and the groups above it, below `root`. In a container the
// path may be the host's, of which only the end of the walk, the root, is there.
std::uint64_t LowestLimit(const std::string& root, std::string group, const std::string& name) {
  std::uint64_t lowest = kNoLimit;
  for (;;) {
    std::ifstream file(root + group + "/" + name);
    std::uint64_t limit = 0;
    if (file >> limit) lowest = std::min(lowest, limit);  // not for "max"
    if (group.empty()) return lowest;
    group.resize(group.rfind('/'));
  }
}

bool NamesMemory(const std::string& controllers) {
  std::istringstream names(controllers);
  for (std::string name; std::getline(names, name, ',');) {
    if (name == "memory") return true;
  }
  return false;
}

}  // namespace

std::string InMebibytes(std::uint64_t bytes) {
  constexpr std::uint64_t kMebibyte = 1 << 20;
  return std::to_string(bytes / kMebibyte + (bytes % kMebibyte != 0 ? 1 : 0)) + " MiB";
}

std::uint64_t GroupMemoryLimit(const std::string& membership, const std::string& hierarchies) {
  std::uint64_t lowest = kNoLimit;
  std::istringstream lines(membership);
  // "number:controllers:path"; version 2 has no controllers.
  for (std::string line; std::getline(lines, line);) {
    const std::size_t controllers = line.find(':');
    if (controllers == std::string::npos) continue;
    const std::size_t path = line.find(':', controllers + 1);
    if (path == std::string::npos || line[path + 1] != '/') continue;
    const std::string names = line.substr(controllers + 1, path - controllers - 1);
    std::string group = line.substr(path + 1);
    if (group == "/") group.clear();
    if (names.empty()) lowest = std::min(lowest, LowestLimit(hierarchies, group, "memory.max"));
    if (NamesMemory(names)) {
      lowest = std::min(lowest, LowestLimit(hierarchies + "/memory", group, "memory.limit_in_bytes"));
    }
  }
  return lowest;
}

MemoryLimits ReadMemoryLimits() {
  MemoryLimits limits;
  limits.file = ResourceLimit(RLIMIT_FSIZE);
  const std::uint64_t address = ResourceLimit(RLIMIT_AS);
  if (address != kNoLimit) limits.address = address - std::min(address, AddressSpaceInUse());
  limits.group = GroupMemoryLimit(ReadAll("/proc/self/cgroup"), "/sys/fs/cgroup");
  return limits;
}

std::uint64_t PhysicalMemory() {
  return static_cast<std::uint64_t>(::sysconf(_SC_PHYS_PAGES)) *
         static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
}

std::uint64_t DefaultArenaBytes(std::uint64_t physical, const MemoryLimits& limits, int local_size) {
  const std::uint64_t share = kMostMapped / static_cast<std::uint64_t>(local_size);
  return std::min({physical, limits.group, share}) / kArenaUnit * kArenaUnit;
}

Status ChooseArenaBytes(const ArenaWish& wish, const MemoryLimits& limits, std::uint64_t* bytes,
                        std::string* warning) {
  const auto ranks = static_cast<std::uint64_t>(wish.local_size);
  *bytes = wish.bytes;
  warning->clear();

  const std::uint64_t least = wish.fixed ? wish.bytes : wish.least_bytes;
  const std::string lower = wish.fixed ? ", or lower SMDDP_ARENA_BYTES" : "";
  if (limits.file < least) {
    return Internal("an arena of " + InMebibytes(least) + " is above this process's file size limit of " +
                    std::to_string(limits.file >> 20) + " MiB; raise it (ulimit -f unlimited)" + lower);
  }
  const std::uint64_t mapped = least * ranks + wish.other_bytes;
  if (limits.address < mapped) {
    return Internal("the shared memory of " + std::to_string(ranks) + " ranks takes " + InMebibytes(mapped) +
                    " of address space, but this process's limit leaves " +
                    std::to_string(limits.address >> 20) + " MiB; raise it (ulimit -v unlimited)" + lower);
  }

  if (!wish.fixed) {
    const std::uint64_t share =
        limits.address == kNoLimit ? kNoLimit : (limits.address - wish.other_bytes) / kArenaShare / ranks;
    const std::uint64_t most = std::min(limits.file, share);
    if (most < wish.bytes) {
      *bytes = std::max(most / kArenaUnit * kArenaUnit, wish.least_bytes);
      *warning = std::string("the arena has ") + InMebibytes(*bytes) + " instead of " +
                 InMebibytes(wish.bytes) + " because of the " +
                 (limits.file < share ? "file size limit (ulimit -f)" : "address space limit (ulimit -v)") +
                 "; when it is full, tensors take a slower path";
      return {};
    }
  }
  if (wish.fixed && limits.group / ranks < *bytes) {
    *warning = "the arenas of " + std::to_string(ranks) + " ranks can grow to " +
               InMebibytes(*bytes * ranks) + ", but the memory limit of this control group is " +
               InMebibytes(limits.group) +
               ": the kernel kills a process when that is reached; raise it, or lower SMDDP_ARENA_BYTES";
  }
  return {};
}

}  // namespace tf_smddp

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

// The limit of the address space that all arenas of a host take together.
constexpr std::uint64_t kMostMapped = std::uint64_t{16} << 40;

// The arenas take at most 1/kArenaShare of the address space that is left; TensorFlow needs the rest.
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

// Returns the lowest limit in the files `name` of `group` and its ancestors below `root`. In a container,
// `group` may be a path of the host, of which only the root exists here.
std::uint64_t LowestLimit(const std::string& root, std::string group, const std::string& name) {
  std::uint64_t lowest = kNoLimit;
  for (;;) {
    std::ifstream file(root + group + "/" + name);
    std::uint64_t limit = 0;
    if (file >> limit) lowest = std::min(lowest, limit);  // "max" is no number
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
  // Lines are "number:controllers:path"; version 2 names no controllers.
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

Status ChooseArenaBytes(const ArenaRequirements& required, const MemoryLimits& limits, std::uint64_t* bytes,
                        std::string* warning) {
  const auto ranks = static_cast<std::uint64_t>(required.local_size);
  *bytes = required.bytes;
  warning->clear();

  const std::uint64_t least = required.fixed ? required.bytes : required.least_bytes;
  const std::string lower = required.fixed ? ", or lower SMDDP_ARENA_BYTES" : "";
  if (limits.file < least) {
    return Internal("an arena of " + InMebibytes(least) + " is above this process's file size limit of " +
                    std::to_string(limits.file >> 20) + " MiB; raise it (ulimit -f unlimited)" + lower);
  }
  const std::uint64_t mapped = least * ranks + required.other_bytes;
  if (limits.address < mapped) {
    return Internal("the shared memory of " + std::to_string(ranks) + " ranks takes " + InMebibytes(mapped) +
                    " of address space, but this process's limit leaves " +
                    std::to_string(limits.address >> 20) + " MiB; raise it (ulimit -v unlimited)" + lower);
  }

  if (!required.fixed) {
    const std::uint64_t share =
        limits.address == kNoLimit ? kNoLimit : (limits.address - required.other_bytes) / kArenaShare / ranks;
    const std::uint64_t most = std::min(limits.file, share);
    if (most < required.bytes) {
      *bytes = std::max(most / kArenaUnit * kArenaUnit, required.least_bytes);
      *warning = std::string("the arena has ") + InMebibytes(*bytes) + " instead of " +
                 InMebibytes(required.bytes) + " because of the " +
                 (limits.file < share ? "file size limit (ulimit -f)" : "address space limit (ulimit -v)") +
                 "; when it is full, tensors take a slower path";
      return {};
    }
  }
  if (required.fixed && limits.group / ranks < *bytes) {
    *warning = "the arenas of " + std::to_string(ranks) + " ranks can grow to " +
               InMebibytes(*bytes * ranks) + ", but the memory limit of this control group is " +
               InMebibytes(limits.group) +
               ": the kernel kills a process when that is reached; raise it, or lower SMDDP_ARENA_BYTES";
  }
  return {};
}

}  // namespace tf_smddp

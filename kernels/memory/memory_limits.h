// Memory limits: reads how much memory this process may use, and chooses the size of its arena.
//
// Place in the stack: above common/. The functions that choose are pure.
#ifndef TF_SMDDP_KERNELS_MEMORY_MEMORY_LIMITS_H_
#define TF_SMDDP_KERNELS_MEMORY_MEMORY_LIMITS_H_

#include <cstdint>
#include <string>

#include "kernels/common/status.h"

namespace tf_smddp {

inline constexpr std::uint64_t kNoLimit = ~std::uint64_t{0};

// In bytes.
struct MemoryLimits {
  std::uint64_t file = kNoLimit;     // the largest file or memfd (RLIMIT_FSIZE)
  std::uint64_t address = kNoLimit;  // the address space that is left (RLIMIT_AS minus the part in use)
  std::uint64_t group = kNoLimit;    // the memory of all processes of the control group together
};

// Returns the memory of this machine, in bytes.
std::uint64_t PhysicalMemory();

// Reads this process's current limits. A limit that cannot be read counts as kNoLimit. Any thread.
MemoryLimits ReadMemoryLimits();

// Returns the lowest memory limit of a control group and its ancestors, for cgroup versions 1 and 2.
// `membership` is the text of /proc/<pid>/cgroup, and `hierarchies` is the directory /sys/fs/cgroup (another
// one in tests).
std::uint64_t GroupMemoryLimit(const std::string& membership, const std::string& hierarchies);

// Returns the size of an arena that can hold all tensors of a rank: the memory of the machine or of the
// control group, so that memory runs out before the arena does. All arenas of a host together have at most 16
// TiB, an eighth of a process's address space. A multiple of 64 KiB.
std::uint64_t DefaultArenaBytes(std::uint64_t physical, const MemoryLimits& limits, int local_size);

struct ArenaRequirements {
  std::uint64_t bytes = 0;        // the size without limits
  bool fixed = false;             // the user has set `bytes`, so a smaller arena is an error
  std::uint64_t least_bytes = 0;  // the smallest size that works
  int local_size = 1;             // the number of ranks whose arenas are mapped
  std::uint64_t other_bytes = 0;  // the size of everything else that is mapped
};

// Sets *bytes to the size of the arena, a multiple of 64 KiB or else required.bytes. Sets *warning to one
// line for the log if that is less than required.bytes, or if arenas of the size that the user has set can
// exceed the control group's limit, else to "". Errors: Internal when a limit is too low, with the limit and
// the remedy.
Status ChooseArenaBytes(const ArenaRequirements& required, const MemoryLimits& limits, std::uint64_t* bytes,
                        std::string* warning);

// Returns a text such as "64 MiB", rounded up.
std::string InMebibytes(std::uint64_t bytes);

}  // namespace tf_smddp

#endif  // TF_SMDDP_KERNELS_MEMORY_MEMORY_LIMITS_H_

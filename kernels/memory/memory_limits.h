// How much memory this process may use, and how large its arena is to be.
//
// Place in the stack: above common/. Reading the limits and deciding are apart; the decision is pure.
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
  std::uint64_t address = kNoLimit;  // address space that is left (RLIMIT_AS less what is used)
  std::uint64_t group = kNoLimit;    // memory of all processes of the control group
};

// Memory of this machine, in bytes.
std::uint64_t PhysicalMemory();

// This process's limits at this moment. What cannot be read counts as no limit. Any thread.
MemoryLimits ReadMemoryLimits();

// The lowest memory limit of a control group and those above it. `membership` is the text of
// /proc/<pid>/cgroup; `hierarchies` is the folder that is /sys/fs/cgroup. Knows versions 1 and 2.
std::uint64_t GroupMemoryLimit(const std::string& membership, const std::string& hierarchies);

// How large an arena is that is to hold all tensors of a rank: as large as the machine's memory, or the
// control group's, so that it is not what runs out first; but all ranks together map 16 TiB at most, an
// eighth of what a process can. A multiple of 64 KiB.
std::uint64_t DefaultArenaBytes(std::uint64_t physical, const MemoryLimits& limits, int local_size);

struct ArenaWish {
  std::uint64_t bytes = 0;        // what the arena would have without limits
  bool fixed = false;             // the user set `bytes`: take it or fail
  std::uint64_t least_bytes = 0;  // less would not work
  int local_size = 1;             // arenas of as many ranks are mapped
  std::uint64_t other_bytes = 0;  // what is mapped besides
};

// Sets *bytes, a multiple of 64 KiB unless it is wish.bytes, and *warning: one line for the log when the
// arena is smaller than wished, or one that the user set can outgrow the control group; else empty. Errors:
// Internal when a limit leaves less than the wish needs, with the limit and the remedy.
Status ChooseArenaBytes(const ArenaWish& wish, const MemoryLimits& limits, std::uint64_t* bytes,
                        std::string* warning);

// "64 MiB"; rounded up.
std::string InMebibytes(std::uint64_t bytes);

}  // namespace tf_smddp

#endif  // TF_SMDDP_KERNELS_MEMORY_MEMORY_LIMITS_H_

// What init() needs of the system, looked for before the ranks meet: a limit that is too low, or a call that
// is refused, ends init() with a sentence on all ranks, rather than a process later.
//
// Place in the stack: below job.h. docs/configuration.md, "Limits of the environment", is about this file.
#ifndef TF_SMDDP_KERNELS_ENGINE_ENVIRONMENT_H_
#define TF_SMDDP_KERNELS_ENGINE_ENVIRONMENT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/common/config.h"
#include "kernels/common/status.h"

namespace tf_smddp {

struct Environment {
  std::uint64_t arena_bytes = 0;      // what this rank's arena is to have
  std::vector<std::string> warnings;  // for the log: what is missing, and what that costs
};

// Looks at this process. `other_bytes` is what the job maps besides the arenas, `threads` how many the engine
// starts. Errors: Internal, naming the limit, what it leaves, what is needed, and the remedy.
Status CheckEnvironment(const Config& config, std::uint64_t other_bytes, int threads,
                        Environment* environment);

// File descriptors that init() has open at most in a job of `local_size` ranks, with some to spare for other
// threads. Three for each rank meanwhile on rank 0 (socket, arena, pidfd); one of them stays.
constexpr int DescriptorsNeeded(int local_size) { return 3 * local_size + 16; }

// How many descriptors this process can still open, counted up to `most`. Any thread.
int FreeDescriptors(int most);

}  // namespace tf_smddp

#endif  // TF_SMDDP_KERNELS_ENGINE_ENVIRONMENT_H_

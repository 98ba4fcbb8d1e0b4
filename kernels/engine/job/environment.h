// Environment: checks, before the ranks meet, that the system grants what init() needs. A limit that is too
// low, or a system call that is refused, then ends init() with an explanation on all ranks, and not a process
// later.
//
// Place in the stack: below job.h. docs/configuration.md, "Limits of the environment", is about this file.
#ifndef TF_SMDDP_KERNELS_ENGINE_JOB_ENVIRONMENT_H_
#define TF_SMDDP_KERNELS_ENGINE_JOB_ENVIRONMENT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/common/config.h"
#include "kernels/common/status.h"

namespace tf_smddp {

struct Environment {
  std::uint64_t arena_bytes = 0;      // the size of this rank's arena
  std::vector<std::string> warnings;  // for the log: what is missing, and its cost
};

// Checks this process. `other_bytes` are the bytes that the job maps besides the arenas; `threads` is the
// number of threads that the engine starts. Errors: Internal, naming the limit, what it leaves, what is
// needed, and the remedy.
Status CheckEnvironment(const Config& config, std::uint64_t other_bytes, int threads,
                        Environment* environment);

// Returns the most file descriptors that init() has open in a job of `local_size` ranks, with some to spare
// for other threads. During the bootstrap rank 0 has three for each rank (socket, arena, pidfd); one of them
// stays.
constexpr int DescriptorsNeeded(int local_size) { return 3 * local_size + 16; }

// Returns how many descriptors this process can still open, counted up to `most`. Any thread.
int FreeDescriptors(int most);

}  // namespace tf_smddp

#endif  // TF_SMDDP_KERNELS_ENGINE_JOB_ENVIRONMENT_H_

// Meeting: what the ranks of a host know of each other once they have met (bootstrap.h).
#ifndef TF_SMDDP_KERNELS_CONTROL_MEETING_H_
#define TF_SMDDP_KERNELS_CONTROL_MEETING_H_

#include <sys/types.h>

#include <cstdint>
#include <vector>

#include "kernels/common/unique_fd.h"

namespace tf_smddp {

// What a rank knows of another, or of itself.
struct LocalPeer {
  pid_t pid = 0;
  UniqueFd pidfd;  // invalid for ranks of this very process, and where the system refuses pidfds
  std::uint64_t start_ticks = 0;  // without a pidfd: tells which process has the pid (common/process.h)
  UniqueFd arena;
  std::uint64_t arena_bytes = 0;
};

struct Meeting {
  UniqueFd control;              // the control segment
  std::vector<LocalPeer> peers;  // by rank; this rank too
};

}  // namespace tf_smddp

#endif  // TF_SMDDP_KERNELS_CONTROL_MEETING_H_

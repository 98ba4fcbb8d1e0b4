// BootstrapResult: the descriptors and process ids that the bootstrap (bootstrap.h) has brought to a rank.
#ifndef TF_SMDDP_KERNELS_CONTROL_BOOTSTRAP_RESULT_H_
#define TF_SMDDP_KERNELS_CONTROL_BOOTSTRAP_RESULT_H_

#include <sys/types.h>

#include <cstdint>
#include <vector>

#include "kernels/common/unique_fd.h"

namespace tf_smddp {

// Describes one rank of this host, which may be this rank itself.
struct LocalPeer {
  pid_t pid = 0;
  UniqueFd pidfd;  // invalid if the rank is a thread of this process, or the system refuses pidfds
  std::uint64_t start_ticks =
      0;  // without a pidfd: identifies the process together with `pid` (common/process.h)
  UniqueFd arena;
  std::uint64_t arena_bytes = 0;
};

struct BootstrapResult {
  UniqueFd control;              // the control segment
  std::vector<LocalPeer> peers;  // by rank, with this rank
};

}  // namespace tf_smddp

#endif  // TF_SMDDP_KERNELS_CONTROL_BOOTSTRAP_RESULT_H_

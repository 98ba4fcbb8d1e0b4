// ExitCause: finds out how a process that is not our child ended.
#ifndef TF_SMDDP_KERNELS_ENGINE_WATCH_EXIT_CAUSE_H_
#define TF_SMDDP_KERNELS_ENGINE_WATCH_EXIT_CAUSE_H_

#include <chrono>
#include <string>

#include "kernels/control/bootstrap.h"

namespace tf_smddp {

// Returns a phrase for the end of the process of `peer`, which has ended: "was killed by signal 9 (SIGKILL)",
// "exited with code 1". The status lies in /proc/<pid>/stat while the process is a zombie (smddprun keeps its
// ranks so until all have ended), and behind the pidfd afterwards on Linux 6.15 and later; waits up to
// `patience` for one of them.
std::string DescribeExit(const LocalPeer& peer, std::chrono::milliseconds patience);

// Returns the same phrase for a wait status of waitpid.
std::string DescribeWaitStatus(int wait_status);

}  // namespace tf_smddp

#endif  // TF_SMDDP_KERNELS_ENGINE_WATCH_EXIT_CAUSE_H_

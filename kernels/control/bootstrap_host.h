// Rank 0's side of the bootstrap (bootstrap.h): it opens the place of the meeting, gathers the others, makes
// the control segment, and introduces everyone to everyone.
#ifndef TF_SMDDP_KERNELS_CONTROL_BOOTSTRAP_HOST_H_
#define TF_SMDDP_KERNELS_CONTROL_BOOTSTRAP_HOST_H_

#include <cstdint>
#include <functional>

#include "kernels/common/config.h"
#include "kernels/common/status.h"
#include "kernels/control/meeting.h"
#include "kernels/control/unix_socket.h"

namespace tf_smddp {

// See Bootstrap and RefuseBootstrap.
Status HostBootstrap(const Config& config, Deadline deadline, int arena_fd, std::uint64_t arena_bytes,
                     Meeting* meeting, const std::function<Status()>& prepare);
void HostRefusal(const Config& config, Deadline deadline, const Status& why);

}  // namespace tf_smddp

#endif  // TF_SMDDP_KERNELS_CONTROL_BOOTSTRAP_HOST_H_

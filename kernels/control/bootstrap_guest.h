// The bootstrap (bootstrap.h) of every rank but 0: it connects to rank 0 and does as that says.
#ifndef TF_SMDDP_KERNELS_CONTROL_BOOTSTRAP_GUEST_H_
#define TF_SMDDP_KERNELS_CONTROL_BOOTSTRAP_GUEST_H_

#include <cstdint>
#include <functional>

#include "kernels/common/config.h"
#include "kernels/common/status.h"
#include "kernels/control/meeting.h"
#include "kernels/control/unix_socket.h"

namespace tf_smddp {

// See Bootstrap and RefuseBootstrap.
Status JoinBootstrap(const Config& config, Deadline deadline, int arena_fd, std::uint64_t arena_bytes,
                     Meeting* meeting, const std::function<Status()>& prepare);
void GuestRefusal(const Config& config, Deadline deadline, const Status& why);

}  // namespace tf_smddp

#endif  // TF_SMDDP_KERNELS_CONTROL_BOOTSTRAP_GUEST_H_

// The client of the bootstrap (bootstrap.h): every rank but 0 connects to rank 0 and follows its messages.
#ifndef TF_SMDDP_KERNELS_CONTROL_BOOTSTRAP_CLIENT_H_
#define TF_SMDDP_KERNELS_CONTROL_BOOTSTRAP_CLIENT_H_

#include <cstdint>
#include <functional>

#include "kernels/common/config.h"
#include "kernels/common/status.h"
#include "kernels/control/bootstrap_result.h"
#include "kernels/control/unix_socket.h"

namespace tf_smddp {

// Implement Bootstrap and RefuseBootstrap for ranks other than 0.
Status JoinBootstrap(const Config& config, Deadline deadline, int arena_fd, std::uint64_t arena_bytes,
                     BootstrapResult* result, const std::function<Status()>& prepare);
void SendRefusal(const Config& config, Deadline deadline, const Status& why);

}  // namespace tf_smddp

#endif  // TF_SMDDP_KERNELS_CONTROL_BOOTSTRAP_CLIENT_H_

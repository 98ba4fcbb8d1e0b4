// The server of the bootstrap (bootstrap.h): rank 0 listens in the rendezvous directory, collects the other
// ranks, and sends every rank what it needs to share memory with the others.
#ifndef TF_SMDDP_KERNELS_CONTROL_BOOTSTRAP_SERVER_H_
#define TF_SMDDP_KERNELS_CONTROL_BOOTSTRAP_SERVER_H_

#include <cstdint>
#include <functional>

#include "kernels/common/config.h"
#include "kernels/common/status.h"
#include "kernels/control/bootstrap_result.h"
#include "kernels/control/unix_socket.h"

namespace tf_smddp {

// Implement Bootstrap and RefuseBootstrap for rank 0.
Status ServeBootstrap(const Config& config, Deadline deadline, int arena_fd, std::uint64_t arena_bytes,
                      BootstrapResult* result, const std::function<Status()>& prepare);
void ServeRefusal(const Config& config, Deadline deadline, const Status& why);

}  // namespace tf_smddp

#endif  // TF_SMDDP_KERNELS_CONTROL_BOOTSTRAP_SERVER_H_

// Says in the log for whom init() waits, when that takes long.
//
// Place in the stack: below bootstrap_roles.h and bootstrap_roles.h.
#ifndef TF_SMDDP_KERNELS_CONTROL_BOOTSTRAP_ROLES_H_
#define TF_SMDDP_KERNELS_CONTROL_BOOTSTRAP_ROLES_H_

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <string>

#include "kernels/common/config.h"
#include "kernels/common/logging.h"
#include "kernels/common/status.h"
#include "kernels/control/bootstrap.h"
#include "kernels/control/unix_socket.h"

namespace tf_smddp {

// Implement Bootstrap and RefuseBootstrap for rank 0.
Status ServeBootstrap(const Config& config, Deadline deadline, int arena_fd, std::uint64_t arena_bytes,
                      BootstrapResult* result, const std::function<Status()>& prepare);
void ServeRefusal(const Config& config, Deadline deadline, const Status& why);

// Implement Bootstrap and RefuseBootstrap for ranks other than 0.
Status JoinBootstrap(const Config& config, Deadline deadline, int arena_fd, std::uint64_t arena_bytes,
                     BootstrapResult* result, const std::function<Status()>& prepare);
void SendRefusal(const Config& config, Deadline deadline, const Status& why);

// Returns when a rank that has begun to wait says so: after ten seconds, or half of the longest wait.
inline Deadline NoticeOf(const Config& config) {
  const std::chrono::milliseconds longest = std::chrono::seconds(config.bootstrap_timeout_seconds);
  return Clock::now() + std::min(longest / 2, std::chrono::milliseconds(10'000));
}

// `whom`: "for rank 0".
inline void LogWait(const Config& config, const std::string& whom) {
  const Logger logger(static_cast<LogLevel>(config.log_level), config.rank);
  logger.Log(LogLevel::kWarning, "init() still waits " + whom + ", up to " +
                                     std::to_string(config.bootstrap_timeout_seconds) +
                                     " s in all (SMDDP_BOOTSTRAP_TIMEOUT)");
}

}  // namespace tf_smddp

#endif  // TF_SMDDP_KERNELS_CONTROL_BOOTSTRAP_ROLES_H_

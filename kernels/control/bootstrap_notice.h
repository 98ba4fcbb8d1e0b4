// Says in the log for whom init() waits, when that takes long.
//
// Place in the stack: below bootstrap_server.h and bootstrap_client.h.
#ifndef TF_SMDDP_KERNELS_CONTROL_BOOTSTRAP_NOTICE_H_
#define TF_SMDDP_KERNELS_CONTROL_BOOTSTRAP_NOTICE_H_

#include <algorithm>
#include <chrono>
#include <string>

#include "kernels/common/config.h"
#include "kernels/common/logging.h"
#include "kernels/control/unix_socket.h"

namespace tf_smddp {

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

#endif  // TF_SMDDP_KERNELS_CONTROL_BOOTSTRAP_NOTICE_H_

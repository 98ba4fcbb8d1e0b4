#include "kernels/control/bootstrap.h"

#include <chrono>

#include "kernels/control/bootstrap_roles.h"

namespace tf_smddp {
namespace {

Deadline DeadlineOf(const Config& config) {
  return Clock::now() + std::chrono::seconds(config.bootstrap_timeout_seconds);
}

}  // namespace

Status Bootstrap(const Config& config, int arena_fd, std::uint64_t arena_bytes, BootstrapResult* result,
                 const std::function<Status()>& prepare) {
  const auto meet = config.local_rank == 0 ? ServeBootstrap : JoinBootstrap;
  return meet(config, DeadlineOf(config), arena_fd, arena_bytes, result, prepare);
}

Status RefuseBootstrap(const Config& config, const Status& why) {
  const auto refuse = config.local_rank == 0 ? ServeRefusal : SendRefusal;
  refuse(config, DeadlineOf(config), why);
  return why;
}

}  // namespace tf_smddp

#include "kernels/control/bootstrap.h"

#include <chrono>

#include "kernels/control/bootstrap_guest.h"
#include "kernels/control/bootstrap_host.h"

namespace tf_smddp {
namespace {

Deadline DeadlineOf(const Config& config) {
  return Clock::now() + std::chrono::seconds(config.bootstrap_timeout_seconds);
}

}  // namespace

Status Bootstrap(const Config& config, int arena_fd, std::uint64_t arena_bytes, Meeting* meeting,
                 const std::function<Status()>& prepare) {
  const auto meet = config.rank == 0 ? HostBootstrap : JoinBootstrap;
  return meet(config, DeadlineOf(config), arena_fd, arena_bytes, meeting, prepare);
}

Status RefuseBootstrap(const Config& config, const Status& why) {
  const auto refuse = config.rank == 0 ? HostRefusal : GuestRefusal;
  refuse(config, DeadlineOf(config), why);
  return why;
}

}  // namespace tf_smddp

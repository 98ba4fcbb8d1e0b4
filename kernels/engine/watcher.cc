#include "kernels/engine/watcher.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>

#include <cerrno>
#include <cstring>
#include <string>

#include "kernels/common/thread.h"
#include "kernels/engine/exit_cause.h"

namespace tf_smddp {
namespace {

constexpr std::uint32_t kStop = ~std::uint32_t{0};  // instead of a rank

Status SystemError(const char* what) { return Internal(std::string(what) + ": " + std::strerror(errno)); }

}  // namespace

Watcher::~Watcher() {
  if (!thread_.joinable()) return;
  ::eventfd_write(stop_.get(), 1);
  thread_.join();
}

Status Watcher::Start() {
  epoll_ = UniqueFd(::epoll_create1(EPOLL_CLOEXEC));
  stop_ = UniqueFd(::eventfd(0, EFD_CLOEXEC));
  if (!epoll_.valid() || !stop_.valid()) return SystemError("the watcher's descriptors");
  epoll_event event = {};
  event.events = EPOLLIN;
  event.data.u32 = kStop;
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, stop_.get(), &event) != 0) return SystemError("epoll_ctl");
  for (int rank = 0; rank < job_->size(); ++rank) {
    const LocalPeer& peer = job_->peer(rank);
    if (!peer.pidfd.valid()) continue;  // this process
    event.data.u32 = static_cast<std::uint32_t>(rank);
    if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, peer.pidfd.get(), &event) != 0)
      return SystemError("epoll_ctl");
  }
  thread_ = StartThread("smddp-watch", [this] { Run(); });
  return {};
}

void Watcher::Run() {
  for (;;) {
    epoll_event event;
    const int count = ::epoll_wait(epoll_.get(), &event, 1, -1);
    if (count != 1) continue;  // EINTR
    if (event.data.u32 == kStop) return;
    const int rank = static_cast<int>(event.data.u32);
    const LocalPeer& peer = job_->peer(rank);
    ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, peer.pidfd.get(), nullptr);
    if ((job_->LeftMask() >> rank & 1) != 0) continue;  // it said goodbye
    job_->Abort("rank " + std::to_string(rank) + " (pid " + std::to_string(peer.pid) + ") " +
                DescribeExit(peer.pid, peer.pidfd.get(), std::chrono::milliseconds(300)));
  }
}

}  // namespace tf_smddp

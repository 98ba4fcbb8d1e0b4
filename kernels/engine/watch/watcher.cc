#include "kernels/engine/watch/watcher.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <string>

#include "kernels/common/process.h"
#include "kernels/common/system_call.h"
#include "kernels/common/thread.h"
#include "kernels/engine/watch/exit_cause.h"

namespace tf_smddp {
namespace {

constexpr int kLookEveryMs = 200;

// Memory that no tensor has used for one to two of these is given back.
constexpr int kTrimEveryMs = 10'000;

// More than one, since the next rank's own watcher may be held up (SIGSTOP, a debugger).
constexpr int kLookedAt = 3;

constexpr std::chrono::milliseconds kExitStatusPatience{300};

constexpr int kLookAtJobEveryMs = 1000;

// A loss of a connection that the relay knows to be harmless, since the rank has shut down, is followed by
// the end of this rank within this time.
constexpr std::chrono::seconds kLossPatience{2};

// A progress thread delivers the end of the job within milliseconds, unless it is in a call that blocks.
constexpr std::chrono::milliseconds kDelivery{1500};

// When the job has ended, a call of the network's library that takes this long does not return any more. From
// the end of the job until the watcher ends the process, the script has this time; and twice of it if the
// process waits for a device, since an abort of NCCL may take some seconds.
constexpr std::chrono::seconds kLongestCall{5}, kTimeForScript{5};

bool HasPassed(Clock::duration patience, Clock::time_point* since) {
  if (*since == Clock::time_point()) *since = Clock::now();
  return Clock::now() - *since >= patience;
}

bool IsGone(const LocalPeer& peer) { return ::kill(peer.pid, 0) != 0 && errno == ESRCH; }

}  // namespace

Watcher::~Watcher() {
  if (!thread_.joinable()) return;
  // Closing it would not do: a forked child may hold it open, too.
  if (::write(stop_.get(), "", 1) < 0) {
    job_->logger().Log(LogLevel::kWarning,
                       "the script has closed file descriptors of tf_smddp, so shutdown() takes up to 10 s");
  }
  thread_.join();
}

Status Watcher::Start() {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return Internal(CallFailed("pipe2", errno));
  stopped_ = UniqueFd(ends[0]);
  stop_ = UniqueFd(ends[1]);
  polled_.push_back({stopped_.get(), POLLIN, 0});
  for (int local = 0; local < job_->local_size(); ++local) {
    const LocalPeer& peer = job_->peer(local);
    if (peer.pid == ::getpid()) continue;
    if (peer.pidfd.valid()) {
      polled_.push_back({peer.pidfd.get(), POLLIN, 0});
      pidfd_ranks_.push_back(local);
    } else {
      without_pidfd_ |= std::uint64_t{1} << local;
    }
  }
  if (without_pidfd_ != 0) {
    const Status status = CheckProc();
    if (!status.ok()) return status;
    if (job_->local_rank() == 0) {
      job_->logger().Log(
          LogLevel::kWarning,
          "pidfd_open is refused: a rank's death is noticed by a look in /proc every 0.2 s, not at "
          "once; use Linux 5.3 or later and a seccomp profile that allows pidfd_open");
    }
  }
  try {
    thread_ = StartThread("smddp-watch", [this] { Run(); });
  } catch (const ThreadRefused& refused) {
    return Internal(refused.what());
  }
  return {};
}

// A death that nobody notices would be a hang.
Status Watcher::CheckProc() const {
  const bool same_namespace =
      job_->peer(job_->local_rank()).pid == ::getpid();  // it may see other process ids
  for (int local = 0; local < job_->local_size(); ++local) {
    if ((without_pidfd_ >> local & 1) == 0) continue;
    const LocalPeer& peer = job_->peer(local);
    ProcessStat stat;
    const bool shown = ReadProcessStat(peer.pid, &stat) && stat.start_ticks == peer.start_ticks;
    if (same_namespace && (shown || IsGone(peer))) continue;
    return Internal(
        "pidfd_open is refused, and /proc does not show rank " + std::to_string(job_->RankOf(local)) +
        " (pid " + std::to_string(peer.pid) +
        "), so its death could not be noticed; use a seccomp profile that allows pidfd_open, or mount "
        "/proc without hidepid, in one pid namespace for all ranks");
  }
  return {};
}

void Watcher::Run() {
  Clock::time_point next_trim = Clock::now() + std::chrono::milliseconds(kTrimEveryMs);
  for (;;) {
    const int count = ::poll(polled_.data(), polled_.size(), Patience(next_trim));
    if (Clock::now() >= next_trim && job_->arena().Trim()) {
      next_trim = Clock::now() + std::chrono::milliseconds(kTrimEveryMs);
    }
    if (count < 0) {
      if (errno != EINTR) ::usleep(kLookEveryMs * 1000);  // the kernel is short of memory
      continue;
    }
    if (polled_[0].revents != 0) {
      if ((polled_[0].revents & POLLNVAL) != 0) {
        job_->logger().Log(
            LogLevel::kWarning,
            "the script has closed file descriptors of tf_smddp (os.closerange?), so the death of "
            "another rank is not noticed any more");
      }
      return;
    }
    if (job_->wire() != nullptr) LookAtWire();
    for (std::size_t i = 1; i < polled_.size(); ++i) {
      if (polled_[i].revents == 0) continue;
      polled_[i].fd = -1;  // poll() passes over it from now on
      polled_[i].revents = 0;
      Died(pidfd_ranks_[i - 1]);
    }
    LookAtNextRanks();
    if (job_->aborted()) LookAtEnd();
  }
}

// In milliseconds, for poll().
int Watcher::Patience(Clock::time_point next_trim) const {
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(next_trim - Clock::now()) +
                    std::chrono::milliseconds(1);
  const auto patience = static_cast<int>(std::max<std::int64_t>(left.count(), 0));
  return std::min(patience, without_pidfd_ != 0 || job_->aborted() ? kLookEveryMs : kLookAtJobEveryMs);
}

void Watcher::LookAtWire() {
  Wire& wire = *job_->wire();
  const std::string silent = wire.Silent();
  if (!silent.empty() && !job_->aborted()) job_->Abort(silent);
  const Wire::Loss loss = wire.Lost();
  if (!loss.reason.empty() && !job_->aborted() && HasPassed(kLossPatience, &lost_)) {
    job_->Abort(DescribeLoss(loss));
  }
}

// The job has ended.
void Watcher::LookAtEnd() {
  for (const std::unique_ptr<Backend>& backend : job_->backends()) backend->EndWork();
  if (HasPassed(kDelivery, &aborted_) && !std::exchange(delivered_, true)) fail_waiting_();
  if (!HasPassed(kTimeForScript, &aborted_)) return;
  const bool in_call = job_->wire() != nullptr && job_->wire()->CallLasts() >= kLongestCall;
  std::string hangs;
  if (in_call) {
    hangs = "a call of the network's library has not returned";
  } else if (HasPassed(2 * kTimeForScript, &aborted_)) {
    hangs = what_hangs_();
  }
  if (hangs.empty()) return;
  job_->logger().Log(LogLevel::kError,
                     hangs +
                         ", though the job has ended, so this process ends now, without the "
                         "end of the script. The job had failed: " +
                         job_->AbortText());
  ::_exit(1);
}

void Watcher::LookAtNextRanks() {
  int looked_at = 0;
  for (int distance = 1; distance < job_->local_size() && looked_at < kLookedAt; ++distance) {
    const int local = (job_->local_rank() + distance) % job_->local_size();
    if ((without_pidfd_ >> local & 1) == 0 || job_->HasLeft(local)) continue;
    ++looked_at;
    const LocalPeer& peer = job_->peer(local);
    if (ProcessRuns(peer.pid, peer.start_ticks)) continue;
    without_pidfd_ &= ~(std::uint64_t{1} << local);
    Died(local);
  }
}

void Watcher::Died(int local) {
  if (job_->HasLeft(local)) return;  // it has shut down in good order
  const LocalPeer& peer = job_->peer(local);
  const std::string host = job_->wire() == nullptr ? "" : " on " + HostName();
  job_->Abort("rank " + std::to_string(job_->RankOf(local)) + " (pid " + std::to_string(peer.pid) + host +
              ") " + DescribeExit(peer, kExitStatusPatience));
}

}  // namespace tf_smddp

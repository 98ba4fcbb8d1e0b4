#include "kernels/control/bootstrap_host.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "kernels/common/process.h"
#include "kernels/common/system_call.h"
#include "kernels/common/unique_fd.h"
#include "kernels/control/bootstrap_messages.h"
#include "kernels/control/job_segment.h"
#include "kernels/control/rendezvous.h"
#include "kernels/control/unix_socket.h"

namespace tf_smddp {
namespace {

// After a failure, rank 0 stays as long to tell ranks that have not come yet.
constexpr std::chrono::seconds kFarewell{10};

std::string RankName(int rank) { return "rank " + std::to_string(rank); }

// Sets by what the others notice that the process of `rank` has ended: its pidfd or, where the system refuses
// those, its start time, with which they look for it in /proc.
Status Identify(int rank, LocalPeer* peer) {
  if (peer->pid == 0) {
    return Internal(RankName(rank) +
                    " runs in a pid namespace that rank 0 does not see; start all ranks in one container");
  }
  peer->pidfd = UniqueFd(static_cast<int>(::syscall(SYS_pidfd_open, peer->pid, 0)));
  if (peer->pidfd.valid()) return {};
  const int error = errno;
  const std::string process = RankName(rank) + " (pid " + std::to_string(peer->pid) + ")";
  if (error == ESRCH) return Internal(process + " ended during init()");
  if (!CallIsRefused(error)) return Internal(CallFailed("pidfd_open for " + process, error));
  ProcessStat stat;
  if (!ReadProcessStat(peer->pid, &stat)) {
    return Internal(CallFailed("pidfd_open", error) + ", or mount a /proc that shows " + process +
                    ": its death could not be noticed");
  }
  peer->start_ticks = stat.start_ticks;
  return {};
}

class Host {
 public:
  Host(const Config& config, Deadline deadline)
      : config_(config), deadline_(deadline), sockets_(config.size) {}

  Status Run(int arena_fd, std::uint64_t arena_bytes, Meeting* meeting,
             const std::function<Status()>& prepare) {
    Status status = Meet(arena_fd, arena_bytes, meeting);
    if (status.ok()) status = Introduce(meeting);
    if (status.ok()) status = prepare();
    for (int rank = 1; status.ok() && rank < config_.size; ++rank) status = AwaitReady(rank);
    // The last word: go, or why not. One that cannot be told has ended, and is noticed by the watchers.
    const Verdict verdict = MakeVerdict(status);
    for (int rank = 1; rank < config_.size; ++rank) {
      if (!sockets_[rank].valid()) continue;
      const Status sent = SendMessage(sockets_[rank].get(), &verdict, sizeof verdict, {});
      if (status.ok() && !sent.ok())
        return Internal(RankName(rank) + " died during init(): " + sent.message());
    }
    return status;
  }

  void Refuse(const Status& why) {
    UniqueFd listener;
    if (!OpenPlace(&listener).ok()) return;
    AnswerTheRest(listener.get(), Internal("rank 0 failed during init(): " + why.message()), {},
                  config_.size - 1);
    place_.Close();
  }

 private:
  Status Meet(int arena_fd, std::uint64_t arena_bytes, Meeting* meeting) {
    UniqueFd listener;
    Status status = OpenPlace(&listener);
    if (!status.ok()) return status;
    meeting->peers.resize(config_.size);
    LocalPeer& self = meeting->peers[0];
    self.pid = ::getpid();
    self.arena = UniqueFd(::fcntl(arena_fd, F_DUPFD_CLOEXEC, 0));
    self.arena_bytes = arena_bytes;
    std::vector<UniqueFd> silent;
    int missing = config_.size - 1;
    status = self.arena.valid() ? Gather(listener.get(), MakeHello(config_, place_.token(), arena_bytes),
                                         meeting, &silent, &missing)
                                : Internal(CallFailed("fcntl", errno));
    if (!status.ok()) AnswerTheRest(listener.get(), status, std::move(silent), missing);
    place_.Close();
    if (status.ok()) status = JobSegment::Create(config_, &meeting->control);
    return status;
  }

  Status OpenPlace(UniqueFd* listener) {
    Status status = place_.Find(config_);
    if (status.ok()) status = place_.Open();
    if (status.ok()) status = ListenUnix(place_.socket_path(), config_.size, listener);
    return status;
  }

  // Accepts hellos until every rank is there. `silent` have connected, and have not said hello yet; `missing`
  // ranks have not.
  Status Gather(int listener, const Hello& ours, Meeting* meeting, std::vector<UniqueFd>* silent,
                int* missing) {
    while (*missing > 0) {
      if (MillisecondsUntil(deadline_) == 0) return MissingRanks();
      std::vector<pollfd> polled = {{listener, POLLIN, 0}};
      for (const UniqueFd& socket : *silent) polled.push_back({socket.get(), POLLIN, 0});
      for (int rank = 1; rank < config_.size; ++rank) {
        if (sockets_[rank].valid()) polled.push_back({sockets_[rank].get(), POLLIN, 0});  // for its end
      }
      const int count = ::poll(polled.data(), polled.size(), MillisecondsUntil(deadline_));
      if (count < 0 && errno != EINTR) return Internal(std::string("poll: ") + std::strerror(errno));
      if (count == 0) return MissingRanks();
      if (count < 0) continue;
      for (std::size_t i = 1 + silent->size(); i < polled.size(); ++i) {
        if (polled[i].revents != 0) return EndedEarly(polled[i].fd);
      }
      for (std::size_t i = 0; i < silent->size(); ++i) {
        if (polled[1 + i].revents == 0) continue;
        --*missing;
        Status status = Greet(std::move((*silent)[i]), ours, meeting, missing);
        if (!status.ok()) return status;
      }
      silent->erase(
          std::remove_if(silent->begin(), silent->end(), [](const UniqueFd& fd) { return !fd.valid(); }),
          silent->end());
      if (polled[0].revents != 0) {
        UniqueFd socket(::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC));
        if (!socket.valid() && errno != EINTR && errno != EAGAIN && errno != ECONNABORTED) {
          return Internal(std::string("rank 0 cannot accept another rank: ") + std::strerror(errno) +
                          "; if descriptors have run out, raise their limit (ulimit -n)");
        }
        PeerCredentials credentials;
        if (socket.valid() && ReadPeerCredentials(socket.get(), &credentials).ok() &&
            credentials.uid == ::geteuid()) {
          silent->push_back(std::move(socket));  // anybody else's connection is dropped here
        }
      }
    }
    return {};
  }

  // The job has failed: tells those that have not said hello, and those that are on their way, for a limited
  // time. Keeps nothing of them, so that few descriptors are enough.
  void AnswerTheRest(int listener, const Status& why, std::vector<UniqueFd> silent, int missing) {
    const Deadline end = std::min(deadline_, Clock::now() + kFarewell);
    const Verdict verdict = MakeVerdict(why);
    for (;;) {
      for (UniqueFd& socket : silent) {
        if (!socket.valid()) continue;
        // An answer would be lost if a message was there that had not been received.
        Hello hello;
        std::vector<UniqueFd> fds;
        if (ReceiveMessage(socket.get(), &hello, sizeof hello, 1, end, &fds).ok()) {
          if (IsOfAnotherRun(hello)) {
            RefuseStranger(socket.get());
            continue;
          }
          static_cast<void>(SendMessage(socket.get(), &verdict, sizeof verdict, {}));  // best effort
        }
        --missing;
      }
      silent.clear();
      pollfd polled = {listener, POLLIN, 0};
      if (missing <= 0 || ::poll(&polled, 1, MillisecondsUntil(end)) == 0) return;
      UniqueFd socket(::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC));
      PeerCredentials credentials;
      if (!socket.valid() && errno != EINTR && errno != EAGAIN && errno != ECONNABORTED) return;
      if (socket.valid() && ReadPeerCredentials(socket.get(), &credentials).ok() &&
          credentials.uid == ::geteuid()) {
        silent.push_back(std::move(socket));
      }
    }
  }

  bool IsOfAnotherRun(const Hello& hello) const {
    return hello.magic == kHelloMagic && hello.token != place_.token();
  }

  // Nothing is wrong with our run then.
  void RefuseStranger(int socket) const {
    const Verdict verdict = MakeVerdict(
        Internal("this process met rank 0 of another run, and was refused: its SMDDP_JOB_ID, or what its "
                 "launcher says of the run, is another; for rank 0, " +
                 place_.explanation()));
    static_cast<void>(SendMessage(socket, &verdict, sizeof verdict, {}));  // best effort: it is none of ours
  }

  // Counts a process of another run as `missing` again, since it is none of ours.
  Status Greet(UniqueFd socket, const Hello& ours, Meeting* meeting, int* missing) {
    Hello hello;
    std::vector<UniqueFd> fds;
    Status status = ReceiveMessage(socket.get(), &hello, sizeof hello, 1, deadline_, &fds);
    if (!status.ok()) return Internal("a process that connected during init() " + status.message());
    PeerCredentials credentials;
    status = ReadPeerCredentials(socket.get(), &credentials);
    if (status.ok() && IsOfAnotherRun(hello)) {
      RefuseStranger(socket.get());
      refused_ = "; pid " + std::to_string(credentials.pid) + " came as rank " + std::to_string(hello.rank) +
                 " of another run, and was refused";
      ++*missing;
      return {};
    }
    if (status.ok()) status = CheckHello(hello, ours);
    if (status.ok() && fds.size() != 1) status = HearRefusal(socket.get(), hello.rank);
    if (status.ok() && sockets_[hello.rank].valid()) {
      status = Internal("two processes are " + RankName(hello.rank) + ": pid " +
                        std::to_string(meeting->peers[hello.rank].pid) + " and pid " +
                        std::to_string(credentials.pid) + "; start the ranks with smddprun");
    }
    if (!status.ok()) {
      const Verdict verdict = MakeVerdict(status);
      SendMessage(socket.get(), &verdict, sizeof verdict, {});  // best effort: the job fails here anyway
      return status;
    }
    LocalPeer& peer = meeting->peers[hello.rank];
    peer.pid = credentials.pid;
    peer.arena = std::move(fds[0]);
    peer.arena_bytes = hello.arena_bytes;
    sockets_[hello.rank] = std::move(socket);
    // Ranks as threads of one process die together.
    return peer.pid == ::getpid() ? Status() : Identify(hello.rank, &peer);
  }

  // From a rank without an arena: why it has none.
  Status HearRefusal(int socket, int rank) {
    Verdict verdict;
    std::vector<UniqueFd> fds;
    Status status = ReceiveMessage(socket, &verdict, sizeof verdict, 0, deadline_, &fds);
    if (status.ok()) status = StatusOf(verdict);
    return Internal(RankName(rank) + " failed during init(): " + status.message());
  }

  Status Introduce(Meeting* meeting) {
    for (int to = 1; to < config_.size; ++to) {
      if (meeting->peers[to].pid == meeting->peers[0].pid) continue;
      Status status = Identify(0, &meeting->peers[0]);
      if (!status.ok()) return status;
      break;
    }
    const Verdict welcome = MakeVerdict({});
    for (int to = 1; to < config_.size; ++to) {
      Status status = SendMessage(sockets_[to].get(), &welcome, sizeof welcome, {meeting->control.get()});
      for (int about = 0; status.ok() && about < config_.size; ++about) {
        const LocalPeer& peer = meeting->peers[about];
        const bool needs_pidfd = peer.pidfd.valid() && peer.pid != meeting->peers[to].pid;
        const Introduction introduction = {
            about, peer.pid, peer.arena_bytes, peer.start_ticks, needs_pidfd ? 1u : 0u, 0};
        std::vector<int> fds = {peer.arena.get()};
        if (needs_pidfd) fds.push_back(peer.pidfd.get());
        status = SendMessage(sockets_[to].get(), &introduction, sizeof introduction, fds);
      }
      if (!status.ok()) return Internal(RankName(to) + " died during init(): " + status.message());
    }
    meeting->peers[0].pidfd.Reset();  // for the others
    return {};
  }

  Status AwaitReady(int rank) {
    Verdict verdict;
    std::vector<UniqueFd> fds;
    Status status = ReceiveMessage(sockets_[rank].get(), &verdict, sizeof verdict, 0, deadline_, &fds);
    if (status.ok()) status = StatusOf(verdict);
    return status.ok() ? status : Internal(RankName(rank) + " failed during init(): " + status.message());
  }

  Status MissingRanks() const {
    std::string missing;
    for (int rank = 1; rank < config_.size; ++rank) {
      if (!sockets_[rank].valid()) missing += (missing.empty() ? "" : ", ") + std::to_string(rank);
    }
    return Internal(
        "init() waited " + std::to_string(config_.bootstrap_timeout_seconds) + " s for rank(s) " + missing +
        " of " + std::to_string(config_.size) +
        "; were they started, and do they call init()? SMDDP_BOOTSTRAP_TIMEOUT (seconds) sets the limit; " +
        place_.explanation() + refused_);
  }

  Status EndedEarly(int fd) const {
    for (int rank = 1; rank < config_.size; ++rank) {
      if (sockets_[rank].get() == fd) return Internal(RankName(rank) + " ended during init()");
    }
    return Internal("a rank ended during init()");
  }

  const Config& config_;
  const Deadline deadline_;
  Rendezvous place_;
  std::string refused_;            // on the last process of another run that came
  std::vector<UniqueFd> sockets_;  // by rank; [0] is not used
};

}  // namespace

Status HostBootstrap(const Config& config, Deadline deadline, int arena_fd, std::uint64_t arena_bytes,
                     Meeting* meeting, const std::function<Status()>& prepare) {
  return Host(config, deadline).Run(arena_fd, arena_bytes, meeting, prepare);
}

void HostRefusal(const Config& config, Deadline deadline, const Status& why) {
  Host(config, deadline).Refuse(why);
}

}  // namespace tf_smddp

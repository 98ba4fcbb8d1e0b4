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

#include "kernels/common/logging.h"
#include "kernels/common/process.h"
#include "kernels/common/system_call.h"
#include "kernels/common/unique_fd.h"
#include "kernels/control/bootstrap_messages.h"
#include "kernels/control/bootstrap_roles.h"
#include "kernels/control/rendezvous.h"
#include "kernels/control/unix_socket.h"

namespace tf_smddp {
namespace {

// After a failure, rank 0 keeps listening for this long, to tell the reason to ranks that come late.
constexpr std::chrono::seconds kFailureNotice{10};

std::string RankName(int rank) { return "rank " + std::to_string(rank); }

// Sets the means by which the other ranks notice the end of `rank`'s process: a pidfd or, where the system
// refuses pidfds, the start time, with which they can find the process in /proc.
Status IdentifyProcess(int rank, LocalPeer* peer) {
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

class Server {
 public:
  Server(const Config& config, Deadline deadline)
      : config_(config), deadline_(deadline), sockets_(config.local_size) {}

  Status Run(int arena_fd, std::uint64_t arena_bytes, BootstrapResult* result,
             const std::function<Status()>& prepare) {
    Status status = AcceptRanks(arena_fd, arena_bytes, result);
    if (status.ok()) status = SendPeers(result);
    if (status.ok()) status = prepare();
    for (int rank = 1; status.ok() && rank < config_.local_size; ++rank) status = AwaitReady(rank);
    // The last message: go, or the reason of the failure.
    const StatusMessage message = MakeStatusMessage(status);
    for (int rank = 1; rank < config_.local_size; ++rank) {
      if (!sockets_[rank].valid()) continue;
      const Status sent = SendMessage(sockets_[rank].get(), &message, sizeof message, {});
      if (status.ok() && !sent.ok())
        return Internal(RankName(rank) + " died during init(): " + sent.message());
    }
    return status;
  }

  void Refuse(const Status& why) {
    UniqueFd listener;
    if (!Listen(&listener).ok()) return;
    SendFailure(listener.get(), Internal("rank 0 failed during init(): " + why.message()), {},
                config_.local_size - 1);
    rendezvous_.Close();
  }

 private:
  Status AcceptRanks(int arena_fd, std::uint64_t arena_bytes, BootstrapResult* result) {
    UniqueFd listener;
    Status status = Listen(&listener);
    if (!status.ok()) return status;
    result->peers.resize(config_.local_size);
    LocalPeer& self = result->peers[0];
    self.pid = ::getpid();
    self.arena = UniqueFd(::fcntl(arena_fd, F_DUPFD_CLOEXEC, 0));
    self.arena_bytes = arena_bytes;
    std::vector<UniqueFd> unidentified;
    int missing = config_.local_size - 1;
    status = self.arena.valid()
                 ? AcceptHellos(listener.get(), MakeHello(config_, rendezvous_.token(), arena_bytes), result,
                                &unidentified, &missing)
                 : Internal(CallFailed("fcntl", errno));
    if (!status.ok()) SendFailure(listener.get(), status, std::move(unidentified), missing);
    rendezvous_.Close();
    return status;
  }

  Status Listen(UniqueFd* listener) {
    Status status = rendezvous_.Find(config_);
    if (status.ok()) status = rendezvous_.Open();
    if (status.ok()) status = ListenUnix(rendezvous_.socket_path(), config_.local_size, listener);
    return status;
  }

  // Accepts hellos until every rank has sent one. `unidentified` are the connections that have not sent a
  // hello yet; *missing is the number of ranks that have not.
  Status AcceptHellos(int listener, const Hello& ours, BootstrapResult* result,
                      std::vector<UniqueFd>* unidentified, int* missing) {
    Deadline notice = NoticeOf(config_);
    while (*missing > 0) {
      if (MillisecondsUntil(deadline_) == 0) return MissingRanks();
      if (Clock::now() >= notice) {
        LogWait(config_, "for rank(s) " + MissingNames());
        notice = deadline_;
      }
      std::vector<pollfd> polled = {{listener, POLLIN, 0}};
      for (const UniqueFd& socket : *unidentified) polled.push_back({socket.get(), POLLIN, 0});
      for (int rank = 1; rank < config_.local_size; ++rank) {
        if (sockets_[rank].valid())
          polled.push_back({sockets_[rank].get(), POLLIN, 0});  // readable when it ends
      }
      const int count = ::poll(polled.data(), polled.size(), MillisecondsUntil(std::min(deadline_, notice)));
      if (count < 0 && errno != EINTR) return Internal(std::string("poll: ") + std::strerror(errno));
      if (count <= 0) continue;
      for (std::size_t i = 1 + unidentified->size(); i < polled.size(); ++i) {
        if (polled[i].revents != 0) return EndedEarly(polled[i].fd);
      }
      for (std::size_t i = 0; i < unidentified->size(); ++i) {
        if (polled[1 + i].revents == 0) continue;
        --*missing;
        Status status = HandleHello(std::move((*unidentified)[i]), ours, result, missing);
        if (!status.ok()) return status;
      }
      unidentified->erase(std::remove_if(unidentified->begin(), unidentified->end(),
                                         [](const UniqueFd& fd) { return !fd.valid(); }),
                          unidentified->end());
      if (polled[0].revents != 0) {
        UniqueFd socket(::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC));
        if (!socket.valid() && errno != EINTR && errno != EAGAIN && errno != ECONNABORTED) {
          return Internal(std::string("rank 0 cannot accept another rank: ") + std::strerror(errno) +
                          "; if descriptors have run out, raise their limit (ulimit -n)");
        }
        PeerCredentials credentials;
        if (socket.valid() && ReadPeerCredentials(socket.get(), &credentials).ok() &&
            credentials.uid == ::geteuid()) {
          unidentified->push_back(std::move(socket));  // a connection of another user is closed here
        }
      }
    }
    return {};
  }

  // Sends the reason of the failure to the connections that have not sent a hello, and to ranks that connect
  // within the next kFailureNotice. Closes each connection at once, so that few descriptors are enough.
  void SendFailure(int listener, const Status& why, std::vector<UniqueFd> unidentified, int missing) {
    const Deadline end = std::min(deadline_, Clock::now() + kFailureNotice);
    const StatusMessage message = MakeStatusMessage(why);
    for (;;) {
      for (UniqueFd& socket : unidentified) {
        if (!socket.valid()) continue;
        // Receive first: closing a socket with unread data would discard the answer.
        Hello hello;
        std::vector<UniqueFd> fds;
        if (ReceiveMessage(socket.get(), &hello, sizeof hello, 1, end, &fds).ok()) {
          if (IsOfAnotherRun(hello)) {
            RejectOtherRun(socket.get());
            continue;
          }
          static_cast<void>(SendMessage(socket.get(), &message, sizeof message, {}));  // best effort
        }
        --missing;
      }
      unidentified.clear();
      pollfd polled = {listener, POLLIN, 0};
      if (missing <= 0 || ::poll(&polled, 1, MillisecondsUntil(end)) == 0) return;
      UniqueFd socket(::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC));
      PeerCredentials credentials;
      if (!socket.valid() && errno != EINTR && errno != EAGAIN && errno != ECONNABORTED) return;
      if (socket.valid() && ReadPeerCredentials(socket.get(), &credentials).ok() &&
          credentials.uid == ::geteuid()) {
        unidentified.push_back(std::move(socket));
      }
    }
  }

  bool IsOfAnotherRun(const Hello& hello) const {
    return hello.magic == kHelloMagic && hello.token != rendezvous_.token();
  }

  // Tells a process of another run that it has come to the wrong rank 0. That is no failure of this run.
  void RejectOtherRun(int socket) const {
    const StatusMessage message = MakeStatusMessage(Internal(
        "this process met rank 0 of another run, and was refused: their SMDDP_JOB_ID, or the ids that "
        "their launchers gave them, differ; for rank 0, " +
        rendezvous_.explanation()));
    static_cast<void>(
        SendMessage(socket, &message, sizeof message, {}));  // best effort: it is no rank of this run
  }

  // Notes, for the message if init() fails later, and logs, that a connection is closed that is no rank's.
  void Drop(int pid, const std::string& what) {
    const std::string process = "pid " + std::to_string(pid) + " connected during init() and " + what;
    refused_ = "; " + process;
    const Logger logger(static_cast<LogLevel>(config_.log_level), config_.rank);
    logger.Log(LogLevel::kWarning, process + ", so it is not counted as a rank; init() goes on without it");
  }

  // Reads the hello of a new connection and takes its sender as a rank. A process of another run, and one
  // that sends no hello, is rejected, and *missing is incremented again.
  Status HandleHello(UniqueFd socket, const Hello& ours, BootstrapResult* result, int* missing) {
    Hello hello;
    std::vector<UniqueFd> fds;
    PeerCredentials credentials;
    Status status = ReadPeerCredentials(socket.get(), &credentials);
    if (!status.ok()) return status;
    status = ReceiveMessage(socket.get(), &hello, sizeof hello, 1, deadline_, &fds);
    if (!status.ok()) {
      Drop(credentials.pid, status.message());
      ++*missing;
      return {};
    }
    if (IsOfAnotherRun(hello)) {
      RejectOtherRun(socket.get());
      refused_ = "; pid " + std::to_string(credentials.pid) + " came as rank " + std::to_string(hello.rank) +
                 " of another run, and was refused";
      ++*missing;
      return {};
    }
    status = CheckHello(hello, ours);
    if (status.ok() && fds.size() != 1) status = ReceiveRefusal(socket.get(), hello.rank);
    if (status.ok() && sockets_[hello.rank].valid()) {
      status = Internal("two processes are " + RankName(hello.rank) + ": pid " +
                        std::to_string(result->peers[hello.rank].pid) + " and pid " +
                        std::to_string(credentials.pid) + "; start the ranks with smddprun");
    }
    if (!status.ok()) {
      const StatusMessage message = MakeStatusMessage(status);
      SendMessage(socket.get(), &message, sizeof message, {});  // best effort: the job fails here anyway
      return status;
    }
    LocalPeer& peer = result->peers[hello.rank];
    peer.pid = credentials.pid;
    peer.arena = std::move(fds[0]);
    peer.arena_bytes = hello.arena_bytes;
    sockets_[hello.rank] = std::move(socket);
    // Ranks that are threads of one process end together.
    return peer.pid == ::getpid() ? Status() : IdentifyProcess(hello.rank, &peer);
  }

  // Receives the reason from a rank that has sent no arena, because it cannot take part.
  Status ReceiveRefusal(int socket, int rank) {
    StatusMessage message;
    std::vector<UniqueFd> fds;
    Status status = ReceiveMessage(socket, &message, sizeof message, 0, deadline_, &fds);
    if (status.ok()) status = StatusOf(message);
    return Internal(RankName(rank) + " failed during init(): " + status.message());
  }

  Status SendPeers(BootstrapResult* result) {
    for (int to = 1; to < config_.local_size; ++to) {
      if (result->peers[to].pid == result->peers[0].pid) continue;
      Status status = IdentifyProcess(0, &result->peers[0]);
      if (!status.ok()) return status;
      break;
    }
    const StatusMessage welcome = MakeStatusMessage({});
    for (int to = 1; to < config_.local_size; ++to) {
      Status status = SendMessage(sockets_[to].get(), &welcome, sizeof welcome, {result->control.get()});
      for (int about = 0; status.ok() && about < config_.local_size; ++about) {
        const LocalPeer& peer = result->peers[about];
        const bool needs_pidfd = peer.pidfd.valid() && peer.pid != result->peers[to].pid;
        const PeerInfo info = {about, peer.pid, peer.arena_bytes, peer.start_ticks, needs_pidfd ? 1u : 0u, 0};
        std::vector<int> fds = {peer.arena.get()};
        if (needs_pidfd) fds.push_back(peer.pidfd.get());
        status = SendMessage(sockets_[to].get(), &info, sizeof info, fds);
      }
      if (!status.ok()) return Internal(RankName(to) + " died during init(): " + status.message());
    }
    result->peers[0].pidfd.Reset();  // only the other ranks need it
    return {};
  }

  Status AwaitReady(int rank) {
    StatusMessage message;
    std::vector<UniqueFd> fds;
    Status status = ReceiveMessage(sockets_[rank].get(), &message, sizeof message, 0, deadline_, &fds);
    if (status.ok()) status = StatusOf(message);
    return status.ok() ? status : Internal(RankName(rank) + " failed during init(): " + status.message());
  }

  std::string MissingNames() const {
    std::string missing;
    for (int rank = 1; rank < config_.local_size; ++rank) {
      if (!sockets_[rank].valid()) missing += (missing.empty() ? "" : ", ") + std::to_string(rank);
    }
    return missing;
  }

  Status MissingRanks() const {
    return Internal(
        "init() waited " + std::to_string(config_.bootstrap_timeout_seconds) + " s for rank(s) " +
        MissingNames() + " of " + std::to_string(config_.local_size) +
        "; were they started, and do they call init()? SMDDP_BOOTSTRAP_TIMEOUT (seconds) sets the limit; " +
        rendezvous_.explanation() + refused_);
  }

  Status EndedEarly(int fd) const {
    for (int rank = 1; rank < config_.local_size; ++rank) {
      if (sockets_[rank].get() == fd) return Internal(RankName(rank) + " ended during init()");
    }
    return Internal("a rank ended during init()");
  }

  const Config& config_;
  const Deadline deadline_;
  Rendezvous rendezvous_;
  std::string refused_;            // for messages: the last process of another run that came
  std::vector<UniqueFd> sockets_;  // by rank; [0] is not used
};

}  // namespace

Status ServeBootstrap(const Config& config, Deadline deadline, int arena_fd, std::uint64_t arena_bytes,
                      BootstrapResult* result, const std::function<Status()>& prepare) {
  return Server(config, deadline).Run(arena_fd, arena_bytes, result, prepare);
}

void ServeRefusal(const Config& config, Deadline deadline, const Status& why) {
  Server(config, deadline).Refuse(why);
}

}  // namespace tf_smddp

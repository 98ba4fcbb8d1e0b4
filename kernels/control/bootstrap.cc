#include "kernels/control/bootstrap.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

#include "kernels/control/control_segment.h"
#include "kernels/control/unix_socket.h"

namespace tf_smddp {
namespace {

constexpr std::uint64_t kHelloMagic = 0x316f6c6c6548u;  // "Hello1": changes with any of these messages

// Rank 0 runs out of time first, and tells the others which ranks were missing.
constexpr std::chrono::seconds kPatienceWithRankZero{5};

struct Hello {
  std::uint64_t magic;
  std::int32_t rank;
  std::int32_t size;
  std::int64_t bucket_cap_bytes;
  std::int64_t small_bytes;
  std::int64_t chunk_bytes;
  std::int64_t table_slots;
  std::uint64_t arena_bytes;
};

// Rank 0 to the others, and back ("ready"): all is well, or why not.
struct Verdict {
  std::uint32_t ok;
  char text[1020];
};

struct Introduction {
  std::int32_t rank;
  std::int32_t pid;
  std::uint64_t arena_bytes;
  std::uint32_t has_pidfd;
  std::uint32_t padding;
};

Hello MakeHello(const Config& config, std::uint64_t arena_bytes) {
  return {kHelloMagic,        config.rank,        config.size,        config.bucket_cap_bytes,
          config.small_bytes, config.chunk_bytes, config.table_slots, arena_bytes};
}

Verdict MakeVerdict(const Status& status) {
  Verdict verdict = {};
  verdict.ok = status.ok() ? 1 : 0;
  std::memcpy(verdict.text, status.message().data(),
              std::min(status.message().size(), sizeof verdict.text - 1));
  return verdict;
}

std::string RankName(int rank) { return "rank " + std::to_string(rank); }

Status SettingDiffers(const char* name, int rank, std::int64_t theirs, std::int64_t ours) {
  return Internal(std::string(name) + " is " + std::to_string(theirs) + " on " + RankName(rank) + " but " +
                  std::to_string(ours) + " on rank 0; give all ranks the same value");
}

Status CheckHello(const Hello& theirs, const Hello& ours) {
  if (theirs.magic != kHelloMagic) {
    return Internal(
        "a process connected that runs another version of tf_smddp; install one version for all ranks");
  }
  if (theirs.size != ours.size) return SettingDiffers("SMDDP_SIZE", theirs.rank, theirs.size, ours.size);
  if (theirs.rank < 1 || theirs.rank >= ours.size) {
    return Internal("a process connected as rank " + std::to_string(theirs.rank) + " of " +
                    std::to_string(ours.size));
  }
  if (theirs.bucket_cap_bytes != ours.bucket_cap_bytes) {
    return SettingDiffers("SMDDP_BUCKET_CAP_BYTES", theirs.rank, theirs.bucket_cap_bytes,
                          ours.bucket_cap_bytes);
  }
  if (theirs.small_bytes != ours.small_bytes) {
    return SettingDiffers("SMDDP_SMALL_BYTES", theirs.rank, theirs.small_bytes, ours.small_bytes);
  }
  if (theirs.chunk_bytes != ours.chunk_bytes) {
    return SettingDiffers("SMDDP_CHUNK_BYTES", theirs.rank, theirs.chunk_bytes, ours.chunk_bytes);
  }
  if (theirs.table_slots != ours.table_slots) {
    return SettingDiffers("SMDDP_TABLE_SLOTS", theirs.rank, theirs.table_slots, ours.table_slots);
  }
  return {};
}

// The directory decides who may connect: it must be ours alone.
Status CheckPrivate(const std::string& directory) {
  struct stat info;
  if (::lstat(directory.c_str(), &info) != 0) {
    return Internal("the rendezvous directory SMDDP_RENDEZVOUS='" + directory + "' cannot be used: " +
                    std::strerror(errno) + "; the job that it belonged to may have ended");
  }
  if (!S_ISDIR(info.st_mode) || info.st_uid != ::geteuid() || (info.st_mode & 077) != 0) {
    return Internal("the rendezvous directory SMDDP_RENDEZVOUS='" + directory +
                    "' must be a directory of this user with mode 0700");
  }
  return {};
}

Status OpenPidfd(pid_t pid, int rank, UniqueFd* pidfd) {
  if (pid == ::getpid()) return {};  // ranks as threads of one process die together
  *pidfd = UniqueFd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  if (pidfd->valid()) return {};
  return Internal(
      "pidfd_open for " + RankName(rank) + " (pid " + std::to_string(pid) +
      ") failed: " + std::strerror(errno) +
      "; it needs Linux 5.3 or later, one pid namespace for all ranks, and a seccomp profile that allows it");
}

// Rank 0's side.
class Host {
 public:
  Host(const Config& config, Deadline deadline)
      : config_(config), deadline_(deadline), sockets_(config.size) {}

  Status Run(int arena_fd, std::uint64_t arena_bytes, Meeting* meeting,
             const std::function<Status()>& prepare) {
    Status status = Meet(arena_fd, arena_bytes, meeting);
    if (status.ok()) status = Introduce(*meeting);
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

 private:
  Status Meet(int arena_fd, std::uint64_t arena_bytes, Meeting* meeting) {
    Status status = CheckPrivate(config_.rendezvous);
    if (!status.ok()) return status;
    const std::string path = config_.rendezvous + "/bootstrap";
    UniqueFd listener;
    status = ListenUnix(path, config_.size, &listener);
    if (!status.ok()) return status;
    meeting->peers.resize(config_.size);
    LocalPeer& self = meeting->peers[0];
    self.pid = ::getpid();
    self.arena = UniqueFd(::fcntl(arena_fd, F_DUPFD_CLOEXEC, 0));
    self.arena_bytes = arena_bytes;
    status = Gather(listener.get(), MakeHello(config_, arena_bytes), meeting);
    ::unlink(path.c_str());
    ::rmdir(config_.rendezvous.c_str());  // fails, rightly, when somebody else put a file there
    if (status.ok()) status = ControlSegment::Create(config_, &meeting->control);
    return status;
  }

  // Accepts hellos until every rank is there.
  Status Gather(int listener, const Hello& ours, Meeting* meeting) {
    std::vector<UniqueFd> silent;  // connected, and have not said hello yet
    for (int missing = config_.size - 1; missing > 0;) {
      if (MillisecondsUntil(deadline_) == 0) return MissingRanks();
      std::vector<pollfd> polled = {{listener, POLLIN, 0}};
      for (const UniqueFd& socket : silent) polled.push_back({socket.get(), POLLIN, 0});
      for (int rank = 1; rank < config_.size; ++rank) {
        if (sockets_[rank].valid()) polled.push_back({sockets_[rank].get(), POLLIN, 0});  // for its end
      }
      const int count = ::poll(polled.data(), polled.size(), MillisecondsUntil(deadline_));
      if (count < 0 && errno != EINTR) return Internal(std::string("poll: ") + std::strerror(errno));
      if (count == 0) return MissingRanks();
      if (count < 0) continue;
      for (std::size_t i = 1 + silent.size(); i < polled.size(); ++i) {
        if (polled[i].revents != 0) return EndedEarly(polled[i].fd);
      }
      std::vector<UniqueFd> still_silent;
      for (std::size_t i = 0; i < silent.size(); ++i) {
        if (polled[1 + i].revents == 0) {
          still_silent.push_back(std::move(silent[i]));
          continue;
        }
        Status status = Greet(std::move(silent[i]), ours, meeting, &missing);
        if (!status.ok()) return status;
      }
      silent = std::move(still_silent);
      if (polled[0].revents != 0) {
        UniqueFd socket(::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC));
        if (!socket.valid() && errno != EINTR && errno != EAGAIN && errno != ECONNABORTED) {
          return Internal(std::string("rank 0 cannot accept another rank: ") + std::strerror(errno) +
                          "; if descriptors have run out, raise their limit (ulimit -n)");
        }
        PeerCredentials credentials;
        if (socket.valid() && ReadPeerCredentials(socket.get(), &credentials).ok() &&
            credentials.uid == ::geteuid()) {
          silent.push_back(std::move(socket));  // anybody else's connection is dropped here
        }
      }
    }
    return {};
  }

  Status Greet(UniqueFd socket, const Hello& ours, Meeting* meeting, int* missing) {
    Hello hello;
    std::vector<UniqueFd> fds;
    Status status = ReceiveMessage(socket.get(), &hello, sizeof hello, 1, deadline_, &fds);
    if (!status.ok()) return Internal("a process that connected during init() " + status.message());
    PeerCredentials credentials;
    status = ReadPeerCredentials(socket.get(), &credentials);
    if (status.ok()) status = CheckHello(hello, ours);
    if (status.ok() && fds.size() != 1) status = Internal(RankName(hello.rank) + " sent no arena");
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
    --*missing;
    return OpenPidfd(peer.pid, hello.rank, &peer.pidfd);
  }

  Status Introduce(const Meeting& meeting) {
    UniqueFd own_pidfd;
    for (int to = 1; to < config_.size; ++to) {
      if (meeting.peers[to].pid == meeting.peers[0].pid) continue;
      own_pidfd = UniqueFd(static_cast<int>(::syscall(SYS_pidfd_open, ::getpid(), 0)));
      if (!own_pidfd.valid())
        return Internal(std::string("pidfd_open for rank 0 failed: ") + std::strerror(errno));
      break;
    }
    const Verdict welcome = MakeVerdict({});
    for (int to = 1; to < config_.size; ++to) {
      Status status = SendMessage(sockets_[to].get(), &welcome, sizeof welcome, {meeting.control.get()});
      for (int about = 0; status.ok() && about < config_.size; ++about) {
        const LocalPeer& peer = meeting.peers[about];
        const int pidfd = about == 0 ? own_pidfd.get() : peer.pidfd.get();
        const bool needs_pidfd = pidfd >= 0 && peer.pid != meeting.peers[to].pid;
        const Introduction introduction = {about, peer.pid, peer.arena_bytes, needs_pidfd ? 1u : 0u, 0};
        std::vector<int> fds = {peer.arena.get()};
        if (needs_pidfd) fds.push_back(pidfd);
        status = SendMessage(sockets_[to].get(), &introduction, sizeof introduction, fds);
      }
      if (!status.ok()) return Internal(RankName(to) + " died during init(): " + status.message());
    }
    return {};
  }

  Status AwaitReady(int rank) {
    Verdict verdict;
    std::vector<UniqueFd> fds;
    Status status = ReceiveMessage(sockets_[rank].get(), &verdict, sizeof verdict, 0, deadline_, &fds);
    if (!status.ok()) return Internal(RankName(rank) + " failed during init(): " + status.message());
    if (verdict.ok == 0) {
      verdict.text[sizeof verdict.text - 1] = '\0';
      return Internal(RankName(rank) + " failed during init(): " + verdict.text);
    }
    return {};
  }

  Status MissingRanks() const {
    std::string missing;
    for (int rank = 1; rank < config_.size; ++rank) {
      if (!sockets_[rank].valid()) missing += (missing.empty() ? "" : ", ") + std::to_string(rank);
    }
    return Internal(
        "init() waited " + std::to_string(config_.bootstrap_timeout_seconds) + " s for rank(s) " + missing +
        " of " + std::to_string(config_.size) +
        "; were they started, and do they call init()? SMDDP_BOOTSTRAP_TIMEOUT (seconds) sets the limit");
  }

  Status EndedEarly(int fd) const {
    for (int rank = 1; rank < config_.size; ++rank) {
      if (sockets_[rank].get() == fd) return Internal(RankName(rank) + " ended during init()");
    }
    return Internal("a rank ended during init()");
  }

  const Config& config_;
  const Deadline deadline_;
  std::vector<UniqueFd> sockets_;  // by rank; [0] is not used
};

// Every other rank's side.
class Guest {
 public:
  Guest(const Config& config, Deadline deadline) : config_(config), deadline_(deadline) {}

  Status Run(int arena_fd, std::uint64_t arena_bytes, Meeting* meeting,
             const std::function<Status()>& prepare) {
    Status status = ConnectUnix(config_.rendezvous + "/bootstrap", deadline_, &socket_);
    if (!status.ok()) return status;
    deadline_ += kPatienceWithRankZero;
    const Hello hello = MakeHello(config_, arena_bytes);
    status = SendMessage(socket_.get(), &hello, sizeof hello, {arena_fd});
    std::vector<UniqueFd> fds;
    if (status.ok()) status = HearVerdict(1, &fds);
    if (!status.ok()) return status;
    if (fds.size() != 1) return Internal("rank 0 sent no control segment");
    meeting->control = std::move(fds[0]);
    meeting->peers.resize(config_.size);
    for (int i = 0; i < config_.size; ++i) {
      status = HearIntroduction(meeting);
      if (!status.ok()) return status;
    }
    const Status prepared = prepare();
    const Verdict ready = MakeVerdict(prepared);
    status = SendMessage(socket_.get(), &ready, sizeof ready, {});
    if (!prepared.ok()) return prepared;
    if (status.ok()) status = HearVerdict(0, &fds);
    return status;
  }

 private:
  Status HearVerdict(std::size_t max_fds, std::vector<UniqueFd>* fds) {
    Verdict verdict;
    Status status = ReceiveMessage(socket_.get(), &verdict, sizeof verdict, max_fds, deadline_, fds);
    if (!status.ok()) return Internal("rank 0, during init(): " + status.message());
    verdict.text[sizeof verdict.text - 1] = '\0';
    return verdict.ok != 0 ? Status() : Internal(verdict.text);
  }

  Status HearIntroduction(Meeting* meeting) {
    Introduction introduction;
    std::vector<UniqueFd> fds;
    Status status = ReceiveMessage(socket_.get(), &introduction, sizeof introduction, 2, deadline_, &fds);
    if (!status.ok()) return Internal("rank 0, during init(): " + status.message());
    if (introduction.rank < 0 || introduction.rank >= config_.size ||
        fds.size() != 1 + static_cast<std::size_t>(introduction.has_pidfd)) {
      return Internal("rank 0 sent an introduction that this version does not understand");
    }
    LocalPeer& peer = meeting->peers[introduction.rank];
    peer.pid = introduction.pid;
    peer.arena_bytes = introduction.arena_bytes;
    peer.arena = std::move(fds[0]);
    if (introduction.has_pidfd != 0) peer.pidfd = std::move(fds[1]);
    return {};
  }

  const Config& config_;
  Deadline deadline_;
  UniqueFd socket_;
};

}  // namespace

Status Bootstrap(const Config& config, int arena_fd, std::uint64_t arena_bytes, Meeting* meeting,
                 const std::function<Status()>& prepare) {
  const Deadline deadline =
      std::chrono::steady_clock::now() + std::chrono::seconds(config.bootstrap_timeout_seconds);
  if (config.rank == 0) return Host(config, deadline).Run(arena_fd, arena_bytes, meeting, prepare);
  return Guest(config, deadline).Run(arena_fd, arena_bytes, meeting, prepare);
}

}  // namespace tf_smddp

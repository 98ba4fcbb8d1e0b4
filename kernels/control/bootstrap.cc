#include "kernels/control/bootstrap.h"

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

#include "kernels/common/process.h"
#include "kernels/common/system_call.h"
#include "kernels/control/job_segment.h"
#include "kernels/control/rendezvous.h"
#include "kernels/control/unix_socket.h"

namespace tf_smddp {
namespace {

constexpr std::uint64_t kHelloMagic = 0x326f6c6c6548u;  // "Hello2": changes with any of these messages

// Rank 0 runs out of time first, and tells the others which ranks were missing.
constexpr std::chrono::seconds kPatienceWithRankZero{5};

// After a failure, rank 0 stays as long to tell ranks that have not come yet.
constexpr std::chrono::seconds kFarewell{10};

struct Hello {
  std::uint64_t magic;
  std::uint64_t token;  // the run's, see rendezvous.h
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
  std::uint64_t start_ticks;
  std::uint32_t has_pidfd;
  std::uint32_t padding;
};

Hello MakeHello(const Config& config, std::uint64_t token, std::uint64_t arena_bytes) {
  return {kHelloMagic,
          token,
          config.rank,
          config.size,
          config.bucket_cap_bytes,
          config.small_bytes,
          config.chunk_bytes,
          config.table_slots,
          arena_bytes};
}

Verdict MakeVerdict(const Status& status) {
  Verdict verdict = {};
  verdict.ok = status.ok() ? 1 : 0;
  std::memcpy(verdict.text, status.message().data(),
              std::min(status.message().size(), sizeof verdict.text - 1));
  return verdict;
}

Deadline DeadlineOf(const Config& config) {
  return std::chrono::steady_clock::now() + std::chrono::seconds(config.bootstrap_timeout_seconds);
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

// Rank 0's side.
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
    const Deadline end = std::min(deadline_, std::chrono::steady_clock::now() + kFarewell);
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
    verdict.text[sizeof verdict.text - 1] = '\0';
    return Internal(RankName(rank) +
                    " failed during init(): " + (status.ok() ? verdict.text : status.message()));
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

// Every other rank's side.
class Guest {
 public:
  Guest(const Config& config, Deadline deadline) : config_(config), deadline_(deadline) {}

  Status Run(int arena_fd, std::uint64_t arena_bytes, Meeting* meeting,
             const std::function<Status()>& prepare) {
    Status status = Connect();
    if (!status.ok()) return status;
    status = Meet(arena_fd, arena_bytes, meeting, prepare);
    // Whatever was wrong, when rank 0 has died nobody else removes the place.
    if (!status.ok()) place_.RemoveIfAbandoned();
    return status;
  }

  void Refuse(const Status& why) {
    if (!Connect().ok()) return;
    const Hello hello = MakeHello(config_, place_.token(), 0);
    const Verdict verdict = MakeVerdict(why);
    // Best effort: this rank fails in any case, and rank 0 may have failed too and hung up.
    if (!SendMessage(socket_.get(), &hello, sizeof hello, {}).ok()) return;
    static_cast<void>(SendMessage(socket_.get(), &verdict, sizeof verdict, {}));
  }

 private:
  // Rank 0 must be this user's: the place is private, and so must be the socket that was found in it.
  Status Connect() {
    Status status = place_.Find(config_);
    if (status.ok()) status = place_.CheckPrivate();
    if (!status.ok()) return status;
    status = ConnectUnix(place_.socket_path(), deadline_, place_.derived(), &socket_);
    if (!status.ok()) {
      place_.RemoveIfAbandoned();
      return place_.derived() ? Internal(status.message() + "; " + place_.explanation()) : status;
    }
    if (place_.derived()) status = place_.CheckPrivate();  // once more: now it exists
    if (!status.ok()) return status;
    PeerCredentials credentials;
    status = ReadPeerCredentials(socket_.get(), &credentials);
    if (status.ok() && credentials.uid != ::geteuid()) {
      status = Internal("the socket '" + place_.socket_path() + "' belongs to another user (uid " +
                        std::to_string(credentials.uid) + ")");
    }
    return status;
  }

  Status Meet(int arena_fd, std::uint64_t arena_bytes, Meeting* meeting,
              const std::function<Status()>& prepare) {
    deadline_ += kPatienceWithRankZero;
    const Hello hello = MakeHello(config_, place_.token(), arena_bytes);
    Status status = SendMessage(socket_.get(), &hello, sizeof hello, {arena_fd});
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
    peer.start_ticks = introduction.start_ticks;
    peer.arena = std::move(fds[0]);
    if (introduction.has_pidfd != 0) peer.pidfd = std::move(fds[1]);
    return {};
  }

  const Config& config_;
  Deadline deadline_;
  Rendezvous place_;
  UniqueFd socket_;
};

}  // namespace

Status Bootstrap(const Config& config, int arena_fd, std::uint64_t arena_bytes, Meeting* meeting,
                 const std::function<Status()>& prepare) {
  const Deadline deadline = DeadlineOf(config);
  if (config.rank == 0) return Host(config, deadline).Run(arena_fd, arena_bytes, meeting, prepare);
  return Guest(config, deadline).Run(arena_fd, arena_bytes, meeting, prepare);
}

Status RefuseBootstrap(const Config& config, const Status& why) {
  if (config.rank == 0) {
    Host(config, DeadlineOf(config)).Refuse(why);
  } else {
    Guest(config, DeadlineOf(config)).Refuse(why);
  }
  return why;
}

}  // namespace tf_smddp

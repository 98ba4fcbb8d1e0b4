#include "kernels/control/bootstrap_guest.h"

#include <unistd.h>

#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "kernels/common/unique_fd.h"
#include "kernels/control/bootstrap_messages.h"
#include "kernels/control/rendezvous.h"
#include "kernels/control/unix_socket.h"

namespace tf_smddp {
namespace {

// Rank 0 runs out of time first, and tells the others which ranks were missing.
constexpr std::chrono::seconds kPatienceWithRankZero{5};

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
    return StatusOf(verdict);
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

Status JoinBootstrap(const Config& config, Deadline deadline, int arena_fd, std::uint64_t arena_bytes,
                     Meeting* meeting, const std::function<Status()>& prepare) {
  return Guest(config, deadline).Run(arena_fd, arena_bytes, meeting, prepare);
}

void GuestRefusal(const Config& config, Deadline deadline, const Status& why) {
  Guest(config, deadline).Refuse(why);
}

}  // namespace tf_smddp

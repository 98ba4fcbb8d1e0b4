#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "kernels/common/unique_fd.h"
#include "kernels/control/bootstrap_messages.h"
#include "kernels/control/bootstrap_roles.h"
#include "kernels/control/rendezvous.h"
#include "kernels/control/unix_socket.h"

namespace tf_smddp {
namespace {

// Clients wait this much longer than rank 0 does, so that rank 0 can tell them which ranks are missing.
constexpr std::chrono::seconds kPatienceWithRankZero{5};

class Client {
 public:
  Client(const Config& config, Deadline deadline) : config_(config), deadline_(deadline) {}

  Status Run(int arena_fd, std::uint64_t arena_bytes, BootstrapResult* result,
             const std::function<Status()>& prepare) {
    Status status = Connect();
    if (!status.ok()) return status;
    status = Exchange(arena_fd, arena_bytes, result, prepare);
    // If rank 0 has died, nobody else removes the directory.
    if (!status.ok()) rendezvous_.RemoveIfAbandoned();
    return status;
  }

  void Refuse(const Status& why) {
    if (!Connect().ok()) return;
    const Hello hello = MakeHello(config_, rendezvous_.token(), 0);
    const StatusMessage message = MakeStatusMessage(why);
    // Best effort: this rank fails in any case, and rank 0 may have closed the connection after a failure.
    if (!SendMessage(socket_.get(), &hello, sizeof hello, {}).ok()) return;
    static_cast<void>(SendMessage(socket_.get(), &message, sizeof message, {}));
  }

 private:
  // Connects to rank 0. The directory and the server's process must both belong to this user.
  Status Connect() {
    Status status = rendezvous_.Find(config_);
    if (status.ok()) status = rendezvous_.CheckPrivate();
    if (!status.ok()) return status;
    const Deadline notice = NoticeOf(config_);
    const auto connect = [this](Deadline deadline) {
      return ConnectUnix(rendezvous_.socket_path(), deadline, rendezvous_.derived(), &socket_);
    };
    status = connect(std::min(deadline_, notice));
    if (!status.ok() && MillisecondsUntil(notice) == 0) {
      LogWait(config_, "for rank 0");
      status = connect(deadline_);
    }
    if (!status.ok()) {
      rendezvous_.RemoveIfAbandoned();
      return rendezvous_.derived() ? Internal(status.message() + "; " + rendezvous_.explanation()) : status;
    }
    if (rendezvous_.derived()) status = rendezvous_.CheckPrivate();  // again, because it may not have existed
    if (!status.ok()) return status;
    PeerCredentials credentials;
    status = ReadPeerCredentials(socket_.get(), &credentials);
    if (status.ok() && credentials.uid != ::geteuid()) {
      status = Internal("the socket '" + rendezvous_.socket_path() + "' belongs to another user (uid " +
                        std::to_string(credentials.uid) + ")");
    }
    return status;
  }

  Status Exchange(int arena_fd, std::uint64_t arena_bytes, BootstrapResult* result,
                  const std::function<Status()>& prepare) {
    deadline_ += kPatienceWithRankZero;
    const Hello hello = MakeHello(config_, rendezvous_.token(), arena_bytes);
    Status status = OfRankZero(SendMessage(socket_.get(), &hello, sizeof hello, {arena_fd}));
    std::vector<UniqueFd> fds;
    if (status.ok()) status = ReceiveStatus(1, &fds);
    if (!status.ok()) return status;
    if (fds.size() != 1) return Internal("rank 0 sent no control segment");
    result->control = std::move(fds[0]);
    result->peers.resize(config_.local_size);
    for (int i = 0; i < config_.local_size; ++i) {
      status = ReceivePeerInfo(result);
      if (!status.ok()) return status;
    }
    const Status prepared = prepare();
    const StatusMessage ready = MakeStatusMessage(prepared);
    // Where rank 0 has closed the connection, its last message may have the reason.
    static_cast<void>(SendMessage(socket_.get(), &ready, sizeof ready, {}));
    return prepared.ok() ? ReceiveStatus(0, &fds) : prepared;
  }

  static Status OfRankZero(const Status& status) {
    return status.ok() ? status : Internal("rank 0, during init(): " + status.message());
  }

  Status ReceiveStatus(std::size_t max_fds, std::vector<UniqueFd>* fds) {
    StatusMessage message;
    Status status = ReceiveMessage(socket_.get(), &message, sizeof message, max_fds, deadline_, fds);
    if (!status.ok()) return OfRankZero(status);
    return StatusOf(message);
  }

  Status ReceivePeerInfo(BootstrapResult* result) {
    PeerInfo info;
    std::vector<UniqueFd> fds;
    Status status = ReceiveMessage(socket_.get(), &info, sizeof info, 2, deadline_, &fds);
    if (!status.ok()) return OfRankZero(status);
    if (info.rank < 0 || info.rank >= config_.local_size ||
        fds.size() != 1 + static_cast<std::size_t>(info.has_pidfd)) {
      return Internal("rank 0 sent a description of a rank that this version does not understand");
    }
    LocalPeer& peer = result->peers[info.rank];
    peer.pid = info.pid;
    peer.arena_bytes = info.arena_bytes;
    peer.start_ticks = info.start_ticks;
    peer.arena = std::move(fds[0]);
    if (info.has_pidfd != 0) peer.pidfd = std::move(fds[1]);
    return {};
  }

  const Config& config_;
  Deadline deadline_;
  Rendezvous rendezvous_;
  UniqueFd socket_;
};

}  // namespace

Status JoinBootstrap(const Config& config, Deadline deadline, int arena_fd, std::uint64_t arena_bytes,
                     BootstrapResult* result, const std::function<Status()>& prepare) {
  return Client(config, deadline).Run(arena_fd, arena_bytes, result, prepare);
}

void SendRefusal(const Config& config, Deadline deadline, const Status& why) {
  Client(config, deadline).Refuse(why);
}

}  // namespace tf_smddp

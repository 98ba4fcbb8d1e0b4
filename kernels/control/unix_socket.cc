#include "kernels/control/unix_socket.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <thread>

#include "kernels/common/system_call.h"

namespace tf_smddp {
namespace {

constexpr std::size_t kMaxFds = 8;
constexpr int kInFlightTries = 10000;  // one each millisecond

Status SystemError(const std::string& what) { return Internal(what + ": " + std::strerror(errno)); }

Status MakeAddress(const std::string& path, sockaddr_un* address) {
  std::memset(address, 0, sizeof *address);
  address->sun_family = AF_UNIX;
  if (path.size() >= sizeof address->sun_path) {
    return Internal("the socket path '" + path + "' has " + std::to_string(path.size()) +
                    " bytes, the limit is " + std::to_string(sizeof address->sun_path - 1) +
                    "; use a shorter directory (SMDDP_RENDEZVOUS)");
  }
  std::memcpy(address->sun_path, path.data(), path.size());
  return {};
}

Status MakeSocket(UniqueFd* socket) {
  *socket = UniqueFd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  return socket->valid() ? Status() : Internal(CallFailed("socket", errno));
}

}  // namespace

int MillisecondsUntil(Deadline deadline) {
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now());
  return static_cast<int>(std::clamp<long long>(left.count(), 0, 1 << 30));
}

Status ProbeUnixSockets() {
  UniqueFd socket;
  return MakeSocket(&socket);
}

Status ListenUnix(const std::string& path, int backlog, UniqueFd* listener) {
  sockaddr_un address;
  Status status = MakeAddress(path, &address);
  if (status.ok()) status = MakeSocket(listener);
  if (!status.ok()) return status;
  if (::bind(listener->get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) {
    return SystemError("cannot bind the bootstrap socket '" + path + "'");
  }
  if (::listen(listener->get(), backlog) != 0) return SystemError("listen");
  return {};
}

Status ConnectUnix(const std::string& path, Deadline deadline, bool wait_for_directory, UniqueFd* socket) {
  sockaddr_un address;
  Status status = MakeAddress(path, &address);
  if (!status.ok()) return status;
  const std::string directory = path.substr(0, path.rfind('/'));
  for (;;) {
    status = MakeSocket(socket);
    if (!status.ok()) return status;
    if (::connect(socket->get(), reinterpret_cast<sockaddr*>(&address), sizeof address) == 0) return {};
    if (errno != ENOENT && errno != ECONNREFUSED && errno != EINTR && errno != EAGAIN) {
      return SystemError("cannot connect to rank 0 at '" + path + "'");
    }
    if (!wait_for_directory && ::access(directory.c_str(), F_OK) != 0) {
      return Internal(
          "the rendezvous directory '" + directory +
          "' is gone: the job that it belongs to has already started without this process, or has ended");
    }
    if (MillisecondsUntil(deadline) == 0) {
      return Internal(
          "rank 0 did not open its bootstrap socket '" + path +
          "' in time; was it started, and did it call init()? Or has the job started without this "
          "process, or failed before it came? SMDDP_BOOTSTRAP_TIMEOUT (seconds) sets the limit");
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

Status ReadPeerCredentials(int socket, PeerCredentials* credentials) {
  ucred found;
  socklen_t length = sizeof found;
  if (::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &found, &length) != 0) return SystemError("SO_PEERCRED");
  *credentials = {found.pid, found.uid};
  return {};
}

Status SendMessage(int socket, const void* data, std::size_t bytes, const std::vector<int>& fds) {
  iovec part = {const_cast<void*>(data), bytes};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * kMaxFds)] = {};
  msghdr message = {};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  if (!fds.empty()) {
    message.msg_control = control;
    message.msg_controllen = CMSG_SPACE(sizeof(int) * fds.size());
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int) * fds.size());
    std::memcpy(CMSG_DATA(header), fds.data(), sizeof(int) * fds.size());
  }
  ssize_t sent;
  for (int tries = 0; (sent = ::sendmsg(socket, &message, MSG_NOSIGNAL)) < 0; ++tries) {
    if (errno == EINTR) continue;
    // Linux limits the number of a user's descriptors that are sent but not received yet. Wait for the
    // receivers.
    if (errno != ETOOMANYREFS || tries >= kInFlightTries) break;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  if (sent < 0 && (errno == EPIPE || errno == ECONNRESET)) return Internal("closed the connection");
  if (sent != static_cast<ssize_t>(bytes)) return SystemError("sending a bootstrap message failed");
  return {};
}

Status ReceiveMessage(int socket, void* data, std::size_t bytes, std::size_t max_fds, Deadline deadline,
                      std::vector<UniqueFd>* fds) {
  for (;;) {
    pollfd ready = {socket, POLLIN, 0};
    const int count = ::poll(&ready, 1, MillisecondsUntil(deadline));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return SystemError("poll");
    if (count == 0) return Internal("no answer in time");
    break;
  }
  iovec part = {data, bytes};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * kMaxFds)];
  msghdr message = {};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  ssize_t received;
  do {
    received = ::recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
  } while (received < 0 && errno == EINTR);
  fds->clear();
  if (received > 0) {
    for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr;
         header = CMSG_NXTHDR(&message, header)) {
      if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
      const std::size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
      for (std::size_t i = 0; i < count; ++i) {
        int fd;
        std::memcpy(&fd, CMSG_DATA(header) + i * sizeof(int), sizeof fd);
        fds->emplace_back(fd);  // owned from here on, so that an error below leaks nothing
      }
    }
  }
  if (received == 0 || (received < 0 && errno == ECONNRESET)) return Internal("closed the connection");
  if (received < 0) return SystemError("receiving a bootstrap message failed");
  if (static_cast<std::size_t>(received) != bytes || (message.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0 ||
      fds->size() > max_fds) {
    return Internal("sent a bootstrap message that this version does not understand");
  }
  return {};
}

}  // namespace tf_smddp

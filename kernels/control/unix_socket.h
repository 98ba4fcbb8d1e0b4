// Unix-domain sockets that carry whole messages with file descriptors, and identify the process at the other
// end.
//
// Place in the stack: above common/. Only the bootstrap uses it; bootstrap_messages.h has the messages.
#ifndef TF_SMDDP_KERNELS_CONTROL_UNIX_SOCKET_H_
#define TF_SMDDP_KERNELS_CONTROL_UNIX_SOCKET_H_

#include <sys/types.h>

#include <string>
#include <vector>

#include "kernels/common/clock.h"
#include "kernels/common/status.h"
#include "kernels/common/unique_fd.h"

namespace tf_smddp {

using Deadline = Clock::time_point;

// Returns the milliseconds until `deadline`, or 0 if it has passed; for poll().
int MillisecondsUntil(Deadline deadline);

// Checks that this process may create such sockets. Errors: Internal, with the likely cause.
Status ProbeUnixSockets();

// Binds and listens at `path`. Errors: Internal when the path is too long, or with the system's error.
Status ListenUnix(const std::string& path, int backlog, UniqueFd* listener);

// Connects to `path`, and tries again until a process listens there. `wait_for_directory`: the server creates
// the directory, so its absence is no error. Errors: Internal, also when `deadline` has passed.
Status ConnectUnix(const std::string& path, Deadline deadline, bool wait_for_directory, UniqueFd* socket);

struct PeerCredentials {
  pid_t pid;
  uid_t uid;
};
Status ReadPeerCredentials(int socket, PeerCredentials* credentials);

// Sends `bytes` bytes as one message together with the descriptors `fds`, which stay open here. Errors:
// Internal.
Status SendMessage(int socket, const void* data, std::size_t bytes, const std::vector<int>& fds);

// Receives one message of exactly `bytes` bytes and at most `max_fds` descriptors. Errors: Internal when the
// other process has closed the connection, the message has another size, or `deadline` has passed.
Status ReceiveMessage(int socket, void* data, std::size_t bytes, std::size_t max_fds, Deadline deadline,
                      std::vector<UniqueFd>* fds);

}  // namespace tf_smddp

#endif  // TF_SMDDP_KERNELS_CONTROL_UNIX_SOCKET_H_

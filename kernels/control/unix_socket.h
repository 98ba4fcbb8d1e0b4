// Unix-domain sockets that carry whole messages with file descriptors, and tell who is at the other end.
//
// Place in the stack: above common/. Used by bootstrap.cc only. Not here: what the messages say.
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

// Milliseconds until `deadline`, 0 when it has passed; for poll().
int MillisecondsUntil(Deadline deadline);

// Whether this process may have such sockets. Errors: Internal, naming what refuses.
Status ProbeUnixSockets();

// Binds and listens at `path`. Errors: Internal, with the length limit of such paths or the system's error.
Status ListenUnix(const std::string& path, int backlog, UniqueFd* listener);

// Connects to `path`, trying again while nobody listens there yet. `directory_may_come`: whoever will listen
// makes the directory first; otherwise its absence is an error. Errors: Internal, also when `deadline` has
// passed.
Status ConnectUnix(const std::string& path, Deadline deadline, bool directory_may_come, UniqueFd* socket);

struct PeerCredentials {
  pid_t pid;
  uid_t uid;
};
Status ReadPeerCredentials(int socket, PeerCredentials* credentials);

// Sends `bytes` bytes as one message, with descriptors (kept open here).
Status SendMessage(int socket, const void* data, std::size_t bytes, const std::vector<int>& fds);

// Receives one message of exactly `bytes` bytes and at most `max_fds` descriptors. Errors: Internal when the
// other end is gone ("closed the connection"), the message has another size, or `deadline` has passed.
Status ReceiveMessage(int socket, void* data, std::size_t bytes, std::size_t max_fds, Deadline deadline,
                      std::vector<UniqueFd>* fds);

}  // namespace tf_smddp

#endif  // TF_SMDDP_KERNELS_CONTROL_UNIX_SOCKET_H_

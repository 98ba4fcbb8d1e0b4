// Bootstrap: connects the ranks of one host, so that they share memory.
//
// Place in the stack: the top of control/. It runs once, in init(), in the caller's thread. It leaves no
// socket and no file behind.
//
// Ranks are counted within the host here. Rank 0 is the server (bootstrap_server.cc), the other ranks are
// clients (bootstrap_client.cc):
//   1. Rank 0 checks that the rendezvous directory is private (owned by this user, mode 0700) and listens
//      there.
//   2. Each client connects and sends a Hello: its rank, its settings and the descriptor of its arena.
//   3. Rank 0 checks each client's user and settings. When all ranks have come, it removes the socket and the
//      directory.
//   4. Rank 0 sends every client the control segment and, for each rank, its pid, pidfd (or start time) and
//      arena.
//   5. Each client maps them and reports that it is ready. When all are, rank 0 tells them to go.
// Until step 5 has ended, a failure of one rank is an error on all ranks, with its reason.
#ifndef TF_SMDDP_KERNELS_CONTROL_BOOTSTRAP_H_
#define TF_SMDDP_KERNELS_CONTROL_BOOTSTRAP_H_

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <vector>

#include "kernels/common/config.h"
#include "kernels/common/status.h"
#include "kernels/common/unique_fd.h"

namespace tf_smddp {

// Describes one rank of this host, which may be this rank itself.
struct LocalPeer {
  pid_t pid = 0;
  UniqueFd pidfd;  // invalid if the rank is a thread of this process, or the system refuses pidfds
  std::uint64_t start_ticks =
      0;  // without a pidfd: identifies the process together with `pid` (common/process.h)
  UniqueFd arena;
  std::uint64_t arena_bytes = 0;
};

struct BootstrapResult {
  UniqueFd control;              // the control segment
  std::vector<LocalPeer> peers;  // by rank, with this rank
};

// Collective: every rank must call this. `arena_fd` is this rank's arena of `arena_bytes` bytes. On rank 0,
// result->control is the control segment (job_segment.h), which all get. Fills *result and then calls
// `prepare`, which maps it; if `prepare` fails on one rank, the bootstrap fails on all. Errors: Internal,
// naming the missing ranks, or the rank and the setting that differ.
Status Bootstrap(const Config& config, int arena_fd, std::uint64_t arena_bytes, BootstrapResult* result,
                 const std::function<Status()>& prepare);

// A rank that cannot take part calls this instead of Bootstrap. It sends the reason `why` to the others, so
// that their Bootstrap fails with it, and returns `why`, whether or not it could be sent.
Status RefuseBootstrap(const Config& config, const Status& why);

}  // namespace tf_smddp

#endif  // TF_SMDDP_KERNELS_CONTROL_BOOTSTRAP_H_

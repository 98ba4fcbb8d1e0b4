// Bootstrap: how the ranks of one host find each other and come to share memory.
//
// Place in the stack: the top of control/. It runs once, in init(), in the caller's thread; afterwards no
// socket and no file is left.
//
// Steps. Rank 0 checks that the rendezvous directory is private (ours, 0700) and listens in it. Every other
// rank connects, and says hello with its rank, its settings and the descriptor of its arena. Rank 0 checks
// each one's credentials (same user) and settings, and removes socket and directory once all are there. It
// makes the control segment and answers everyone with it, and with each rank's pid, pidfd (or start time) and
// arena. Everyone says that it is ready; rank 0 then says go. Until go, any failure is an error on all ranks,
// with the reason.
#ifndef TF_SMDDP_KERNELS_CONTROL_BOOTSTRAP_H_
#define TF_SMDDP_KERNELS_CONTROL_BOOTSTRAP_H_

#include <cstdint>
#include <functional>

#include "kernels/common/config.h"
#include "kernels/common/status.h"
#include "kernels/control/meeting.h"

namespace tf_smddp {

// Collective: every rank must call this. `arena_fd` is this rank's arena of `arena_bytes` bytes. `prepare`
// maps what the meeting brought; when it fails on any rank, the bootstrap fails on all. Errors: Internal
// naming the ranks that did not come, or the rank and the setting that differ.
Status Bootstrap(const Config& config, int arena_fd, std::uint64_t arena_bytes, Meeting* meeting,
                 const std::function<Status()>& prepare);

// Instead of Bootstrap, for a rank that cannot take part: tells the others, whose Bootstrap fails, and
// returns `why`. Errors: always; when the others could not be told either, their absence is no part of the
// message.
Status RefuseBootstrap(const Config& config, const Status& why);

}  // namespace tf_smddp

#endif  // TF_SMDDP_KERNELS_CONTROL_BOOTSTRAP_H_

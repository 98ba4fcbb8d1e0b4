// Rendezvous: the directory in which the ranks of this host find each other's socket during the bootstrap.
//
// Place in the stack: above common/. The bootstrap uses it; sockets and messages are in unix_socket.h and
// bootstrap_messages.h.
//
// smddprun creates a directory for each run and names it in SMDDP_RENDEZVOUS (a *given* directory). Other
// launchers do not. There, every rank *derives* the same path, which no other run has:
//
//     <base>/smddp-uid-<user>/<key>/bootstrap
//
// <base> is SMDDP_TMPDIR or else the first usable one of XDG_RUNTIME_DIR, TMPDIR and /tmp. <key> is a hash of
// the boot id, the number of ranks and the launcher's ids in the environment. Where two runs can have the
// same ids, the hash also has the launcher process's pid, start time and pid namespace.
//
// Both directories have mode 0700 and belong to this user, since whoever may enter them may connect. Rank 0
// creates them, and holds a lock (flock) on <key> during the bootstrap. The kernel releases the lock when the
// process ends. So a <key> without a lock was left by a process that was killed. Any process of this user may
// then remove it, once it holds the lock; the next run does so.
#ifndef TF_SMDDP_KERNELS_CONTROL_RENDEZVOUS_H_
#define TF_SMDDP_KERNELS_CONTROL_RENDEZVOUS_H_

#include <cstdint>
#include <string>

#include "kernels/common/config.h"
#include "kernels/common/status.h"
#include "kernels/common/unique_fd.h"

namespace tf_smddp {

// Not thread-safe.
class Rendezvous {
 public:
  Rendezvous() = default;
  ~Rendezvous() { Close(); }
  Rendezvous(const Rendezvous&) = delete;
  Rendezvous& operator=(const Rendezvous&) = delete;

  // Determines the directory for `config`, but does not create it. Errors: Internal when nothing
  // distinguishes this run from others, or no base is usable.
  Status Find(const Config& config);

  // Rank 0: creates the directory, or takes over one that a killed process has left. If another process holds
  // its lock, waits for it for up to five seconds. A given directory must exist. Errors: Internal when the
  // directory is not private, or another process still holds the lock.
  Status Open();

  // Rank 0: removes the directory, so that no other rank can connect any more. Does nothing if it is not
  // open.
  void Close();

  // Other ranks, before they connect: checks that the directory, as far as it exists, is private. Errors:
  // Internal.
  Status CheckPrivate() const;

  // Other ranks, after a failure: removes the directory if the process that opened it has died.
  void RemoveIfAbandoned() const;

  // The path of rank 0's socket.
  std::string socket_path() const { return directory_ + "/bootstrap"; }

  // Returns whether the path is derived. Rank 0 then creates and removes the directory; a given one exists
  // already.
  bool derived() const { return !parent_.empty(); }

  // A hash of all that identifies the run. It is equal on all ranks of a run, and differs between runs.
  std::uint64_t token() const { return token_; }

  // For messages: names the directory, and where its name comes from.
  const std::string& explanation() const { return explanation_; }

 private:
  Status ChooseParent(const Config& config);

  std::string directory_;
  std::string parent_;  // <base>/smddp-uid-<user>; empty for a given directory
  std::uint64_t token_ = 0;
  std::string explanation_;
  UniqueFd lock_;  // rank 0: the directory, open and locked
  bool open_ = false;
};

}  // namespace tf_smddp

#endif  // TF_SMDDP_KERNELS_CONTROL_RENDEZVOUS_H_

// Rendezvous: the place in the file system where the ranks of this host meet, for the time of the bootstrap.
//
// Place in the stack: above common/. bootstrap.cc uses it. Not here: sockets and messages.
//
// smddprun makes a directory for each run and names it in SMDDP_RENDEZVOUS. Other launchers do not, so there
// the ranks must come to the same place by themselves, and those of no other run. It is
//
//     <base>/smddp-uid-<user>/<key>/bootstrap
//
// where <base> is the first usable of XDG_RUNTIME_DIR, TMPDIR and /tmp (or SMDDP_TMPDIR), and <key> is a hash
// of what identifies the run on this machine: the boot, what the launcher says in the environment and, where
// that can be the same for two runs, the launcher's process by pid, start time and pid namespace.
//
// Both directories are of mode 0700 and this user's: who can enter decides who can connect. Rank 0 makes them
// and holds a lock (flock) on <key> while the ranks meet. The kernel releases it with the process. So a <key>
// without a lock is left over from a process that was killed; whoever sees it may remove it, under the lock,
// and the next run of this user does.
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

  // Works out the place for `config`; makes nothing. Errors: Internal when the run cannot be told from
  // others, or there is no usable base.
  Status Find(const Config& config);

  // Rank 0: makes the place, or takes over what a killed process left. Waits for another process that has it,
  // up to five seconds. A given directory must exist. Errors: Internal when it is not private, or another
  // process has it.
  Status Open();

  // Rank 0: removes the place. Nothing happens if it is not open. Then no other rank can come any more.
  void Close();

  // Other ranks, before they connect: whether the place is private, as far as it exists. Errors: Internal.
  Status CheckPrivate() const;

  // Other ranks, after a failure: removes the place if the process that made it has died.
  void RemoveIfAbandoned() const;

  // Where rank 0 listens.
  std::string socket_path() const { return directory_ + "/bootstrap"; }

  // Whether the ranks came to the place by themselves, so that it comes and goes with rank 0. False for a
  // given one.
  bool derived() const { return !parent_.empty(); }

  // The same on all ranks of a run, and differs from another run's: a hash of what is known to identify it.
  std::uint64_t token() const { return token_; }

  // For messages: where the ranks meet and why there.
  const std::string& explanation() const { return explanation_; }

 private:
  Status ChooseParent(const Config& config);

  std::string directory_;
  std::string parent_;  // smddp-uid-<user>; empty for a given directory
  std::uint64_t token_ = 0;
  std::string explanation_;
  UniqueFd lock_;  // the open directory, locked; rank 0's
  bool open_ = false;
};

}  // namespace tf_smddp

#endif  // TF_SMDDP_KERNELS_CONTROL_RENDEZVOUS_H_

// Start: how the members of a communicator come to use NCCL, or not to.
//
// Place in the stack: between nccl_meeting.h, hosts_meeting.h and nccl_transfer.h. It never waits: whatever
// may block runs in a thread of its own (Note [Calls that block]).
//
// Much of what can go wrong with NCCL goes wrong when a communicator is made, or in its first calls: too
// little shared memory in a container, no memory left on the GPU, broken access between GPUs. So all ranks
// make the communicator; when it is made on *all* of them, each makes the calls of a proof (nccl_proof.h);
// and only when all results are right do they use it. If one rank fails, or is late, no rank uses NCCL any
// more, and the engine copies tensors to the host instead (DeviceKeeper::Refused). One line of the job's log
// says why, and what to do. SMDDP_NCCL=required makes that an error, which ends the job.
//
// Note [Made on all]: a kernel of NCCL waits on its GPU for those of other ranks. While it does, a call by
// which another rank still makes its communicator, or takes memory for it, may wait for that GPU. So nobody
// makes calls before all have done so.
//
// Note [Calls that block]: NCCL is asked not to block, and does all the same while it loads a plugin, or
// where nccl.conf has NCCL_COMM_BLOCKING=1. And if the first kernel of NCCL hangs, a thread of the script may
// wait for it with the driver's lock, so that each call of the driver waits, too. The progress thread makes
// none of these calls, so it sees when the time is over.
//
// A start that is given up is aborted in a thread of its own: an abort may wait for what hangs. All these
// threads share the ownership of what the calls use. If one never ends, nor does that.
#ifndef TF_SMDDP_KERNELS_COLLECTIVES_BACKENDS_NCCL_NCCL_START_H_
#define TF_SMDDP_KERNELS_COLLECTIVES_BACKENDS_NCCL_NCCL_START_H_

#include <chrono>
#include <future>
#include <memory>
#include <string>
#include <vector>

#include "kernels/collectives/backend.h"
#include "kernels/collectives/backends/nccl/hosts_meeting.h"
#include "kernels/collectives/backends/nccl/nccl_communicator.h"
#include "kernels/collectives/backends/nccl/nccl_meeting.h"
#include "kernels/collectives/backends/nccl/nccl_proof.h"
#include "kernels/common/status.h"
#include "kernels/cuda/own_stream.h"

namespace tf_smddp::nccl {

// Returns the remedy for an error of NCCL with this text, as a sentence without its full stop. Pure.
std::string RemedyFor(const std::string& text);

// One thread at a time calls its methods.
class Start {
 public:
  // `meeting` outlives it. `hosts`: nullptr if all ranks are on this host.
  Start(const CommunicatorView& communicator, Meeting* meeting, std::shared_ptr<HostsMeeting> hosts);
  // Waits for what was given up; for some ten seconds at most.
  ~Start();

  // Does what can be done now, when this rank's turn has come. All calls of NCCL are made at `place` and on
  // `stream`, which are always the same. `packs`: see HostsMeeting::Meet. `exchanges`: for an all-to-all, the
  // same on all ranks (Note [Memory of an exchange]).
  void Step(const Place& place, const std::shared_ptr<cuda::OwnStream>& stream, bool packs, bool exchanges);

  // This rank cannot use NCCL. Judge tells the others.
  void Fail(const Status& status);

  // What the ranks have decided. It is asked also while this rank's turn has not come.
  Verdict Judge();

  // After Verdict::kAccepted, once: the communicator, in which nothing is in progress.
  std::shared_ptr<Communicator> Take();
  // Whether all ranks pack small tensors; the same on all of them. After Verdict::kAccepted.
  bool all_pack() const { return all_pack_; }

  // The step has failed. The next one goes on with what was made. Returns whether that is impossible, since
  // this rank has calls on its stream that others may never make.
  bool Interrupt();

  // Ends what was begun, and begins anew with the next Step.
  void GiveUp();

 private:
  enum class Stage { kNaming, kMeeting, kMaking, kMade, kCalling, kRunning, kProven, kFailed };
  class Work;

  Status Advance(bool packs, bool exchanges);
  Status Meet(bool packs, bool* met, UniqueId* id);
  bool Say(Milestone milestone);
  std::string Lateness() const;
  std::vector<RankId> Missing(Milestone milestone) const;
  void Refuse(const std::string& text);
  void Tell(const std::string& text) const;
  // As NCCL counts.
  int rank() const { return hosts_ != nullptr ? hosts_->rank() : view_.self.value(); }
  int num_ranks() const { return static_cast<int>(view_.ranks.size()); }

  const CommunicatorView view_;
  Meeting* const meeting_;
  const std::shared_ptr<HostsMeeting> hosts_;
  std::vector<std::future<void>> given_up_;

  Stage stage_ = Stage::kNaming;
  bool timed_ = false;   // the turns of all ranks had come at begin_, in the step under way
  bool called_ = false;  // calls of the proof may be on the stream
  std::chrono::steady_clock::time_point begin_, failed_;
  Status error_;  // with kFailed
  bool all_pack_ = false;
  std::shared_ptr<Work> work_;  // nullptr before the first Step, and when it was given up
};

}  // namespace tf_smddp::nccl

#endif  // TF_SMDDP_KERNELS_COLLECTIVES_BACKENDS_NCCL_NCCL_START_H_

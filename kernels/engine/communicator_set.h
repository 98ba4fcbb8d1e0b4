// CommunicatorSet: the communicators of a job, as one rank knows them.
//
// Place in the stack: between Engine and what runs one communicator (membership.h). Every rank of the job
// knows of every communicator, since they are made by collectives of all; a rank has a membership in those
// that it is in.
#ifndef TF_SMDDP_KERNELS_ENGINE_COMMUNICATOR_SET_H_
#define TF_SMDDP_KERNELS_ENGINE_COMMUNICATOR_SET_H_

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "kernels/engine/completion_thread.h"
#include "kernels/engine/failure_memory.h"
#include "kernels/engine/job.h"
#include "kernels/engine/membership.h"
#include "kernels/engine/stall_watch.h"
#include "kernels/engine/statistics.h"
#include "kernels/engine/timeline.h"

namespace tf_smddp {

class CommunicatorSet {
 public:
  // All outlive it.
  CommunicatorSet(Job* job, CompletionThread* completions, StallWatch* stalls, Timeline* timeline);

  // Makes kWorld. Once, before anything else.
  Status OpenWorld();

  // See Engine. Any thread but the engine's own.
  Status Create(std::vector<int> ranks, CommunicatorId* id);
  Status Remove(CommunicatorId id);

  // Empty when there is no such communicator. Any thread.
  std::vector<int> RanksOf(CommunicatorId id);

  // nullptr when this rank is not in it, or there is none. kWorld's is not to be kept
  // for longer than this. Any thread.
  std::shared_ptr<Membership> Find(CommunicatorId id);

  // "there is no process set 3", or "this rank is not in process set 3, which has ranks 0, 2". Any thread.
  Status WhyNot(CommunicatorId id);

  // nullptr when this rank is not in it, or there is none. Any thread.
  std::shared_ptr<CommunicatorCounters> CountersOf(CommunicatorId id);

  // Adds all that has been counted; with `reset`, counts from 0 again. Any thread.
  void AddStats(bool reset, EngineStats* stats);

  // This rank's requests that were submitted at `before` or earlier and wait for other ranks, oldest first.
  // Any thread.
  std::vector<StallWatch::Waiting> CollectWaiting(Clock::time_point before);

  // All memberships of this rank. Any thread.
  std::vector<std::shared_ptr<Membership>> All();

 private:
  struct Known {
    std::vector<int> ranks;
    int region = 0;                                  // of the control segment, and of its bells
    std::shared_ptr<Membership> membership;          // nullptr when this rank is not in it
    std::shared_ptr<CommunicatorCounters> counters;  // likewise
  };

  // Makes this rank's membership in `known`, of which the other ranks see nothing before Add; nothing when it
  // is no member.
  Status Join(CommunicatorId id, Known* known);
  void Add(CommunicatorId id, Known known);
  // FailedPrecondition when a rank has left the world: it could not agree.
  Status CheckNobodyHasLeft();
  // Blocks until all ranks of the job have called it with the same arguments.
  Status Agree(const std::string& label, CommunicatorId id, const Known& known);
  // The lowest that no communicator has; kMaxCommunicators when there is none.
  int FreeRegion();
  // Blocks until all ranks have let go of what was in `region`, and its memory is zero again. After an
  // agreement on it.
  Status AwaitLetGo(int region);

  Job* const job_;
  CompletionThread* const completions_;
  StallWatch* const stalls_;
  Timeline* const timeline_;
  FailureMemory memory_;

  std::shared_ptr<Membership> world_;  // kWorld's, which is never removed; set once, by OpenWorld

  std::mutex changing_mu_;  // held while one is made or removed; taken before mu_
  // Guarded by changing_mu_. A number is not used again, since functions may hold it longer than its set
  // lives.
  CommunicatorId next_id_ = kWorld + 1;
  std::mutex mu_;
  std::map<CommunicatorId, Known> known_;  // guarded by mu_
  StatsByKind gone_;                       // what removed communicators have counted; guarded by mu_
};

}  // namespace tf_smddp

#endif  // TF_SMDDP_KERNELS_ENGINE_COMMUNICATOR_SET_H_

// CommunicatorSet: the communicators of a job, as one rank knows them.
//
// Place in the stack: between JobEngine and Membership. A rank has a Membership in each communicator that it
// is in. Communicators that all ranks of the job make are known to all: the ranks agree in the world. Those
// that the members make alone are known to these: a rank opens its part, and then the members agree in the
// communicator itself, so whoever disagrees, dies or does not come is noticed as with any other request.
#ifndef TF_SMDDP_KERNELS_ENGINE_JOB_COMMUNICATOR_SET_H_
#define TF_SMDDP_KERNELS_ENGINE_JOB_COMMUNICATOR_SET_H_

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "kernels/engine/core/completion_thread.h"
#include "kernels/engine/core/failure_memory.h"
#include "kernels/engine/job/job.h"
#include "kernels/engine/job/membership.h"
#include "kernels/engine/watch/stall_watch.h"
#include "kernels/engine/watch/statistics.h"
#include "kernels/engine/watch/timeline.h"

namespace tf_smddp {

class CommunicatorSet {
 public:
  // All outlive it.
  CommunicatorSet(Job* job, CompletionThread* completions, StallWatch* stalls, Timeline* timeline);

  // Makes kWorld. Must be called once, before anything else.
  Status OpenWorld();

  // See Engine. Any thread but the engine's own.
  Status Create(std::vector<int> ranks, CommunicatorId* id);
  Status CreateAmong(std::vector<int> ranks, std::uint64_t key, CommunicatorId* id);
  Status Remove(CommunicatorId id);

  // Empty when there is no such communicator. Any thread.
  std::vector<int> RanksOf(CommunicatorId id);

  // Returns nullptr if this rank is not in it, or it does not exist. kWorld's membership must not be kept
  // longer than this set. Any thread.
  std::shared_ptr<Membership> Find(CommunicatorId id);

  // Returns the error "there is no process set 3", or "this rank is not in process set 3, which has ranks 0,
  // 2". Any thread.
  Status WhyNot(CommunicatorId id);

  // nullptr when this rank is not in it, or there is none. Any thread.
  std::shared_ptr<CommunicatorCounters> CountersOf(CommunicatorId id);

  // Adds all counts to *stats; with `reset`, starts to count from 0 again. Any thread.
  void AddStats(bool reset, EngineStats* stats);

  // Returns this rank's requests that were submitted at `before` or earlier and wait for other ranks, oldest
  // first. Any thread.
  std::vector<WaitingRequest> CollectWaiting(Clock::time_point before);

  // Wakes this rank's progress thread of `id`, if it is a member. Any thread.
  void Ring(CommunicatorId id);

  // All memberships of this rank. Any thread.
  std::vector<std::shared_ptr<Membership>> All();

 private:
  struct Known {
    std::vector<int> ranks;
    int region = 0;                                  // of the control segment, and of its bells
    std::shared_ptr<Membership> membership;          // nullptr when this rank is not in it
    std::shared_ptr<CommunicatorCounters> counters;  // likewise
    bool ends = false;                               // a thread removes it
  };

  // Makes this rank's membership in `known`, if it is a member. Other ranks see nothing of it before Add. If
  // the ranks of this host name other members, it is an error if `alone`.
  Status Join(CommunicatorId id, bool alone, Known* known);
  void Add(CommunicatorId id, const Known& known);
  // Returns FailedPrecondition if a rank has left `meeting`, since it could not agree any more.
  static Status CheckNobodyHasLeft(Membership& meeting);
  // Blocks until all members of `meeting` have called it with the same arguments.
  static Status Agree(Membership& meeting, const std::string& label, CommunicatorId id, const Known& known);
  // Blocks until those who have made the communicator agree that it ends.
  Status AgreeOnRemoval(CommunicatorId id, const Known& known);
  // Ends this rank's membership, if it is a member, in which nothing is pending.
  void Drop(CommunicatorId id, Known* known);

  Job* const job_;
  CompletionThread* const completions_;
  StallWatch* const stalls_;
  Timeline* const timeline_;
  FailureMemory memory_;

  std::shared_ptr<Membership> world_;  // kWorld's, which is never removed; set once, by OpenWorld

  // Held while all ranks of the job make or remove a communicator; taken before mu_.
  std::mutex changing_mu_;
  // Guarded by changing_mu_. Numbers are not reused, since traced functions may hold a number longer than its
  // communicator lives.
  CommunicatorId next_id_ = kWorld + 1;
  std::mutex mu_;
  std::map<CommunicatorId, Known> known_;  // guarded by mu_
  std::set<std::uint64_t> keys_;           // that were used here; guarded by mu_
  StatsByKind gone_;                       // the counts of removed communicators; guarded by mu_
};

}  // namespace tf_smddp

#endif  // TF_SMDDP_KERNELS_ENGINE_JOB_COMMUNICATOR_SET_H_

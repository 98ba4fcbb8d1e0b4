// DeadlockWatch: notices when the ranks of a job on one host wait for each other for ever.
//
// Place in the stack: below stall_watch.h, whose thread calls it, beside quiet_process.h.
//
// Note [Deadlock]: when it is certain that the ranks of a job on one host wait for each other for ever, the
// job is ended within seconds. A rank is stuck when, since it last looked,
//   1. its process was quiet (Note [Quiet] in quiet_process.h): no thread can submit a request before the
//      engine wakes it, and the engine does that only when a request ends;
//   2. none was submitted and none has ended; and
//   3. each pending one waits for a rank that has not submitted it.
// It says so in its progress record, with a number that is new whenever one of these was not so, and counts
// its looks. The first rank reads what all say, twice. If the numbers are the same and each rank has looked
// twice in between, so that one whole look came after the first reading, then all ranks were stuck at the
// moment of the first reading. No request could end after it, so none did or will.
#ifndef TF_SMDDP_KERNELS_ENGINE_DEADLOCK_WATCH_H_
#define TF_SMDDP_KERNELS_ENGINE_DEADLOCK_WATCH_H_

#include <cstdint>
#include <vector>

#include "kernels/common/clock.h"
#include "kernels/common/rank_set.h"
#include "kernels/control/progress_record.h"
#include "kernels/engine/job.h"
#include "kernels/engine/quiet_process.h"
#include "kernels/engine/waiting_request.h"

namespace tf_smddp {

class DeadlockWatch {
 public:
  // How often Look is to be called.
  static constexpr Clock::duration kInterval = std::chrono::milliseconds(500);

  // `job` outlives it.
  explicit DeadlockWatch(Job* job);

  // Looks at this rank, and in the first one at all. Returns true when it is certain that all are stuck; then
  // *waiting is what this rank waits for, from `collect`.
  bool Look(const CollectWaitingRequests& collect, std::vector<WaitingRequest>* waiting);

  // The ranks that a stuck rank waits for.
  RankSet StuckFor(int local) const;

 private:
  bool IsStuck(const std::vector<WaitingRequest>& waiting);
  bool AllAreStuck();
  void NotStuck();

  Job* const job_;
  ProgressRecord& own_;
  QuietProcess quiet_;
  std::uint64_t last_submitted_ = 0, last_ended_ = 0;
  Clock::time_point last_move_;        // when one of these was new
  Clock::time_point next_quiet_look_;  // a process that is not quiet is not looked at all the time
  Clock::duration quiet_pause_{};
  std::uint64_t stuck_number_ = 0;     // the last one that this rank has published
  std::vector<std::uint64_t> said_;    // what all ranks said at the first reading; empty before
  std::vector<std::uint64_t> looked_;  // and how often they had looked
};

}  // namespace tf_smddp

#endif  // TF_SMDDP_KERNELS_ENGINE_DEADLOCK_WATCH_H_

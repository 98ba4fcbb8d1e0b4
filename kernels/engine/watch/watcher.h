// Watcher: a thread that notices when another rank's process ends, and ends the job for all. In a job of
// several hosts it also notices when the network says nothing any more. From time to time it gives back arena
// memory that has not been used for a while.
//
// It sleeps in poll() over the peers' pidfds, and notices a death at once. Where the system refuses pidfds,
// it looks in /proc every 200 ms instead, at the next ranks that have not left. That is enough: the rank that
// notices a death ends the job for all, and if some ranks of a circle are dead, a living one is next to a
// dead one.
//
// A connection to another host may be lost that only this rank has looked at. The relay (relay.h) of its host
// does not hear of it, so the watcher ends the job.
//
// It never calls the network's library nor a device's driver. A call of the one may not return when a rank of
// another host has died; of the other, as long as something on the device waits for a rank that has died. So
// when the job has ended, it has the backends end their work on devices. If a progress thread that is in such
// a call does not deliver the error, it delivers that to all that wait beside the batch under way. A call
// that still hangs then would keep the process from ending: the watcher ends it. Before that, the script has
// some seconds for what it does after the error.
#ifndef TF_SMDDP_KERNELS_ENGINE_WATCH_WATCHER_H_
#define TF_SMDDP_KERNELS_ENGINE_WATCH_WATCHER_H_

#include <poll.h>

#include <cstdint>
#include <functional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "kernels/common/clock.h"
#include "kernels/common/status.h"
#include "kernels/common/unique_fd.h"
#include "kernels/engine/job/job.h"

namespace tf_smddp {

class Watcher {
 public:
  // `job` outlives it. After the end of the job it calls `fail_waiting`, once, if it has not ended before;
  // and later `what_hangs`, which returns what does, or "".
  Watcher(Job* job, std::function<void()> fail_waiting, std::function<std::string()> what_hangs)
      : job_(job), fail_waiting_(std::move(fail_waiting)), what_hangs_(std::move(what_hangs)) {}
  ~Watcher();

  // Starts the thread. Errors: Internal when the system has no descriptor or thread left, or neither pidfds
  // nor /proc show the peers.
  Status Start();

 private:
  Status CheckProc() const;
  int Patience(Clock::time_point next_trim) const;
  void Run();
  void LookAtNextRanks();
  void LookAtWire();
  void LookAtEnd();
  void Died(int local);

  Job* const job_;
  const std::function<void()> fail_waiting_;
  const std::function<std::string()> what_hangs_;
  UniqueFd stop_, stopped_;           // a pipe's ends: written to, read from
  std::vector<pollfd> polled_;        // `stopped_`, then a pidfd for each of pidfd_ranks_
  std::vector<int> pidfd_ranks_;      // local, as below
  std::uint64_t without_pidfd_ = 0;   // ranks to look for in /proc, without those that have died
  Clock::time_point lost_, aborted_;  // when it saw that a connection was lost, and the end of the job
  bool delivered_ = false;            // fail_waiting_ was called
  std::thread thread_;                // last: it uses the others
};

}  // namespace tf_smddp

#endif  // TF_SMDDP_KERNELS_ENGINE_WATCH_WATCHER_H_

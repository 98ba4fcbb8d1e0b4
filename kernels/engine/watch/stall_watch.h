// StallWatch: a thread that notices when this rank has waited long for ranks that are alive, or for a device,
// warns with the likely cause, and finally ends the job.
//
// Place in the stack: beside the watcher, which notices deaths. It sleeps while nothing is pending.
// Otherwise it looks a few times within the shorter of SMDDP_STALL_WARNING and SMDDP_STALL_TIMEOUT, and at
// least every 5 s.
//
// Somewhat before a rank has waited too long, it publishes the ranks that it waits for
// (ProgressRecord::waits_for). So all ranks can follow who waits for whom. If several ranks wait together,
// the lowest one that is not stopped writes the warning.
//
// The callback may run before a device has written the result. The stall watch counts such a request as
// pending. A rank that waits for its own device waits for itself.
//
// Note [Progress]: the job is ended only when, for the time of SMDDP_STALL_TIMEOUT, no rank that is waited
// for, also indirectly, has made progress; half of it where all of these wait for each other. A rank makes
// progress when it submits a request or one of its requests ends, in whatever communicator; and, while none
// of its requests is pending, when it uses a tenth of a core: an evaluation, a compilation. A rank that has a
// request pending waits for that request; other work of its process is not progress.
//
// On several hosts, the stall watch of a host's first rank looks at the ranks of its host every 5 s, or more
// often if the timeout is short. It says to the other hosts which ranks compute (Job::last_work), and have
// neither submitted a request since the last look nor one pending.
//
// A request may have a timeout of its own in place of SMDDP_STALL_TIMEOUT. It counts from the submission,
// whatever the others do meanwhile. If both settings are 0, nothing is watched, and it has no effect.
#ifndef TF_SMDDP_KERNELS_ENGINE_WATCH_STALL_WATCH_H_
#define TF_SMDDP_KERNELS_ENGINE_WATCH_STALL_WATCH_H_

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <list>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "kernels/common/clock.h"
#include "kernels/common/rank_set.h"
#include "kernels/common/status.h"
#include "kernels/control/progress_record.h"
#include "kernels/engine/job/job.h"
#include "kernels/engine/watch/stall_report.h"

namespace tf_smddp {

class StallWatch {
 public:
  // `job` outlives it.
  explicit StallWatch(Job* job);
  ~StallWatch();

  // Starts the thread, unless the settings say never. `collect` is called in it. Errors: Internal when the
  // system has no thread left.
  Status Start(CollectWaitingRequests collect);

  // Ends it.
  void Stop();

  // This rank submits a request, with Request::timeout. Any thread; cheap.
  void Submitted(const Manifest& manifest, CommunicatorId communicator, Clock::duration timeout);
  // `count` of its requests have ended, well or not. Any thread; cheap.
  void Ended(std::uint64_t count) { own_.Ended(count); }
  // One of its requests has, but for what is on a stream of a device for as long as `writing` says so. Any
  // thread.
  void EndedButForWriting(WaitingRequest waiting, std::function<bool()> writing);

  // Whether all of its requests have ended, also on their devices. Any thread.
  bool AllEnded();

 private:
  // This rank's view of a rank that it waits for.
  struct Seen {
    bool watched = false;  // the rest is of the stall that lasts
    std::uint64_t submitted = 0, ended = 0;
    std::uint64_t cpu_ticks = 0;
    bool has_cpu = false;
    double cpu_share = -1;
    char state = 0;
    int looks = 0;
    Clock::time_point looked;
    Clock::time_point progress;  // the last one
  };

  void Run();
  bool Idle() const;
  void Look();
  void EndStall(Clock::time_point now);
  void CollectWriting(Clock::time_point before, std::vector<WaitingRequest>* waiting);
  void Publish(const RankSet& missing);
  RankSet WaitedForBy(int local) const;
  RankSet Closure(RankSet ranks) const;
  void LookAt(RankId rank, Clock::time_point now);
  void LookAtOtherHost(RankId rank, Clock::time_point now);
  void TellOfWork(Clock::time_point now);
  void SetPace(Clock::duration shortest);
  void CheckTimeout(const RankSet& awaited, const std::string& text, Clock::time_point now);
  void CheckOwnTimeouts(const std::vector<WaitingRequest>& waiting, Clock::time_point now);
  bool WaitInACircle(const RankSet& awaited) const;
  bool IsElsewhere(const RankSet& awaited) const;
  bool IsReporter(const RankSet& members) const;
  AbsentRank Describe(RankId rank, Clock::time_point now);
  StallReport MakeReport(const std::vector<WaitingRequest>& waiting, Clock::time_point now);

  Job* const job_;
  ProgressRecord& own_;
  const Clock::duration warning_, timeout_;  // 0: never
  Clock::duration patience_{};               // until a wait counts as a stall
  Clock::duration interval_{};               // between two looks
  const bool sees_processes_;                // the peers' pids mean something to this process
  RankSet outside_;                          // the ranks of other hosts
  const bool tells_of_work_;                 // to the other hosts
  const Clock::duration tell_every_;         // at least so long between two looks for that
  CollectWaitingRequests collect_;

  // The stall that lasts. Watch thread only.
  bool stalled_ = false;
  int looks_ = 0;
  bool warned_ = false;
  Clock::time_point since_;
  Clock::duration next_warning_{};  // after since_
  std::vector<Seen> seen_;          // by rank

  // What a rank of this host had done at the last look. Watch thread only.
  struct Done {
    std::uint64_t submitted = 0, cpu_ticks = 0;
  };
  std::vector<Done> done_;  // by local rank
  Clock::time_point counted_;

  struct Writing {
    WaitingRequest waiting;
    std::function<bool()> goes_on;
  };
  std::mutex writing_mu_;
  std::list<Writing> writing_;  // guarded by writing_mu_

  std::mutex mu_;
  std::condition_variable wake_;
  bool stopping_ = false;            // guarded by mu_
  std::atomic<bool> asleep_{false};  // set by the thread, with mu_ held
  // The shortest timeout of a request so far; changes with mu_ held.
  std::atomic<Clock::duration> shortest_{Clock::duration::max()};
  std::thread thread_;  // last: it uses the others
};

}  // namespace tf_smddp

#endif  // TF_SMDDP_KERNELS_ENGINE_WATCH_STALL_WATCH_H_

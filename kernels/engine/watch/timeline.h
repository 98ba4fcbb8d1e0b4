// Timeline: a file that shows when this rank's collectives waited and when they moved data, and its steps, in
// the format of Chrome's traces (chrome://tracing, Perfetto).
//
// Place in the stack: local to a rank; no shared memory. The times are those of a clock that all ranks of a
// host share, so that the files of several ranks fit together. docs/watching.md says what is in it.
#ifndef TF_SMDDP_KERNELS_ENGINE_WATCH_TIMELINE_H_
#define TF_SMDDP_KERNELS_ENGINE_WATCH_TIMELINE_H_

#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>
#include <unordered_map>

#include "kernels/common/status.h"
#include "kernels/common/unique_fd.h"
#include "kernels/engine/request.h"
#include "kernels/engine/watch/statistics.h"

namespace tf_smddp {

class Timeline {
 public:
  Timeline() = default;
  ~Timeline() { static_cast<void>(Stop()); }
  Timeline(const Timeline&) = delete;
  Timeline& operator=(const Timeline&) = delete;

  // Writes requests that end from now on to the file `path`, which it creates or empties. Errors:
  // FailedPrecondition (it is running already), Internal (the file cannot be written). Any thread.
  Status Start(const std::string& path, int rank);

  // Ends the file; does nothing when it is not running. Errors: Internal when a part could not be written.
  // Any thread.
  Status Stop();

  bool running() const { return running_.load(std::memory_order_relaxed); }

  // Adds a request that has ended at `ended`. Its data began to move at cost.begun, if this rank moved any. A
  // failed request is written at once, since the process may be about to end. Any thread.
  void Add(const Request& request, std::uint64_t bytes, Clock::time_point submitted, const Cost& cost,
           Clock::time_point ended, bool failed = false);

  // Adds step `number` of a communicator (CommunicatorCounters::Blocked), which has ended at `ended`: a bar
  // from the end of the step before it, or from Start. Any thread.
  void AddStep(CommunicatorId communicator, std::uint64_t number, Clock::time_point ended);

 private:
  void Flush();  // mu_ is held

  std::atomic<bool> running_{false};
  std::mutex mu_;
  UniqueFd file_;              // guarded by mu_
  std::string path_;           // guarded by mu_
  std::string unwritten_;      // guarded by mu_
  int error_ = 0;              // errno of the first write that failed; guarded by mu_
  int rank_ = 0;               // guarded by mu_
  std::uint64_t next_id_ = 0;  // guarded by mu_
  Clock::time_point started_;  // guarded by mu_
  std::unordered_map<CommunicatorId, Clock::time_point> step_ended_;  // guarded by mu_
};

}  // namespace tf_smddp

#endif  // TF_SMDDP_KERNELS_ENGINE_WATCH_TIMELINE_H_

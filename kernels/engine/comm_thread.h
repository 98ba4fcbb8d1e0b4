// CommThread: follows the two logs and does this rank's part of the work.
//
// Place in the stack: the engine's heart; one per rank. It sleeps on its doorbell when there is nothing to
// do. What it does for one batch (kernels/control/launch_log.h says how a batch comes to be):
//
//   1. Requests whose tensors all lie in arenas are cut into chunks, which the ranks claim one by one from a
//   shared
//      counter. Whoever claims a chunk does it for all ranks, so a rank that is not scheduled delays nobody.
//   2. Requests with a tensor in private memory go through the StagedPipeline; every rank must take part.
//   3. Whoever does the last unit of work ends the batch, complete. On an abort the ranks try to end it,
//   aborted. The first
//      end counts for all (Note [One end]).
//
// Small requests come out of their own log already reduced, also in the middle of a large batch.
#ifndef TF_SMDDP_KERNELS_ENGINE_COMM_THREAD_H_
#define TF_SMDDP_KERNELS_ENGINE_COMM_THREAD_H_

#include <atomic>
#include <chrono>
#include <cstdint>
#include <thread>
#include <vector>

#include "kernels/collectives/backends/shared_memory/staged_pipeline.h"
#include "kernels/engine/dispatcher.h"
#include "kernels/engine/job.h"

namespace tf_smddp {

class CommThread {
 public:
  // Starts the thread. Both outlive it.
  CommThread(Job* job, Dispatcher* dispatcher);
  // Stops it, wherever the job stands; nothing may be pending unless the job was aborted.
  ~CommThread();

 private:
  void Run();
  bool FollowSmallLog();
  bool FollowLaunchLog();
  void RunBatch(LogEntry* last);
  void RunDirect(const std::vector<Place>& places, const ChunkPlan& plan, LogEntry* last,
                 std::uint64_t total_units);
  void RunStaged(std::vector<StagedTransfer> transfers, LogEntry* last, std::uint64_t total_units);
  void AddDone(LogEntry* last, std::uint64_t total_units);
  void Drain();
  void Sleep(std::uint32_t heard);

  Job* const job_;
  Dispatcher* const dispatcher_;
  StagedPipeline pipeline_;
  const std::chrono::microseconds spin_;

  std::uint64_t small_position_ = 0;
  std::uint64_t launch_position_ = 0;
  std::vector<Place> batch_;  // entries read since the last seal
  std::atomic<bool> stopping_{false};
  std::thread thread_;  // last: it uses the others
};

}  // namespace tf_smddp

#endif  // TF_SMDDP_KERNELS_ENGINE_COMM_THREAD_H_

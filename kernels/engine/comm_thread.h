// CommThread: follows the two logs of one communicator and does this rank's part of the work.
//
// Place in the stack: the engine's heart; one per communicator and rank. It sleeps on its doorbell when there
// is nothing to do. What it does for one batch (kernels/control/launch_log.h says how a batch comes to be):
//
//   1. Requests that one rank can do for all (Collective::Reach) and whose tensors all lie in arenas are cut
//      into chunks, which the ranks claim one by one from a shared counter. Whoever claims a chunk does it
//      for all ranks, so a rank that is not scheduled delays nobody.
//   2. Requests of which each rank makes its own output, and whose inputs all lie in arenas: it does so.
//   3. Requests with a tensor in private memory go through the StagedPipeline; every rank must take part.
//   4. Whoever does the last unit of work ends the batch, complete. After a failure the ranks try to end it,
//      aborted. The first end counts for all (Note [One end]).
//
// Small requests come out of their own log already reduced, also in the middle of a large batch.
#ifndef TF_SMDDP_KERNELS_ENGINE_COMM_THREAD_H_
#define TF_SMDDP_KERNELS_ENGINE_COMM_THREAD_H_

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <future>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "kernels/collectives/backends/shared_memory/staged_pipeline.h"
#include "kernels/collectives/chunk_plan.h"
#include "kernels/engine/communicator.h"
#include "kernels/engine/dispatcher.h"
#include "kernels/engine/own_callbacks.h"
#include "kernels/engine/spin_budget.h"
#include "kernels/engine/statistics.h"
#include "kernels/engine/work.h"

namespace tf_smddp {

class CommThread {
 public:
  // Starts the thread. Both outlive it.
  CommThread(Communicator* communicator, Dispatcher* dispatcher);
  // Stops it, wherever the job stands; nothing may be pending unless the job was aborted.
  ~CommThread();

  // Takes this rank out of the communicator for good. Nothing may be pending or come. Blocks until it is
  // done; false when the job was aborted instead. Any thread but the engine's own.
  bool Leave();

  // Calls `submit`, and then does the comm thread's work in this thread until `ended`, or until waiting for
  // the other ranks no longer pays. So nothing has to be woken.
  void Assist(Caller caller, const std::function<void()>& submit, const std::atomic<bool>& ended);

 private:
  using Completions = std::vector<CompletionThread::Completion>;

  // This thread in the comm thread's place, for as long as this lives and the comm thread sleeps.
  class StandIn {
   public:
    // `spin`: for how long it waits for other ranks within a step. What its steps complete is in `completed`
    // in the end, to be called when this no longer lives: the callbacks may do anything.
    StandIn(CommThread* comm, Clock::duration spin, Completions* completed)
        : comm_(comm), spin_(spin), completed_(completed) {}
    ~StandIn();
    StandIn(const StandIn&) = delete;
    StandIn& operator=(const StandIn&) = delete;

    // False while the comm thread itself is at work, or another stand-in.
    bool Try();
    // As CommThread::Step.
    bool Step();
    bool has_completed() const { return lock_.owns_lock() && !comm_->held_.empty(); }

   private:
    CommThread* const comm_;
    const Clock::duration spin_;
    Completions* const completed_;
    std::unique_lock<std::mutex> lock_;
    std::uint32_t heard_ = 0;  // before the last step
    bool moved_ = false;       // in it
  };

  // A request of a batch.
  struct Item {
    PendingTable::Shared pending;
    Work work;
  };

  // What a batch has cost this rank.
  struct BatchCost {
    Clock::time_point begin;
    Clock::duration waiting, moving;
    std::uint64_t weight;  // of its requests, see Weight
  };

  Doorbell& bell() { return communicator_->bell(communicator_->index()); }
  void Run();
  bool Step();
  bool FollowSmallLog();
  void TakeSmall(std::uint64_t item, std::vector<PendingTable::Shared>* done);
  bool FollowLaunchLog();
  void RunBatch(LogEntry* last);
  bool Prepare(const std::vector<Place>& places, std::vector<Item>* shared, std::vector<Item>* own,
               std::vector<Item>* staged);
  std::uint64_t ChunkBytes(const std::vector<Item>& shared) const;
  void RunShared(const std::vector<Item>& items, const ChunkPlan& plan, LogEntry* last,
                 std::uint64_t total_units);
  bool RunOwn(const std::vector<Item>& items);
  bool StepPipeline();
  bool RunStaged(const std::vector<Item>& items);
  void Complete(const std::vector<Place>& places);
  void LogDebug(const std::string& text) const;
  static std::uint64_t Weight(const std::vector<Item>& items);
  void Charge(const std::vector<Item>& items, bool staged, const BatchCost& cost);
  void AddDone(LogEntry* last, std::uint64_t total_units);
  // Where completions go while a stand-in is at work, and calls them soon.
  Completions* holding() { return stood_in_ && !in_batch_ && !OwnCallbacks::TooDeep() ? &held_ : nullptr; }
  bool Broken() { return communicator_->Broken(epoch_); }

  void EndEpoch();
  void BeginEpoch();
  void Restart(std::uint64_t epoch);
  void SettleLogs();
  void LeaveNow();
  void AnswerLeavers();
  void EndJob();
  void Sleep(std::uint32_t heard);
  bool SpinUntilRung(std::uint32_t heard, Clock::duration time);
  bool MayStandInPassing();
  bool StandInUntil(const std::atomic<bool>& ended, Clock::duration spin, Clock::duration most);

  Communicator* const communicator_;
  Dispatcher* const dispatcher_;
  StagedPipeline pipeline_;
  const Clock::duration own_spin_;  // before the comm thread sleeps
  SpinBudget waiting_;              // likewise of who stands in for it and only waits
  SpinBudget passing_;              // and of who goes on

  // Of whoever follows the logs: the comm thread but while it sleeps, or its stand-in. Guards everything up
  // to mu_.
  std::mutex following_;
  bool stood_in_ = false;
  Clock::duration spin_;  // of whoever it is
  Completions held_;      // of a stand-in
  bool in_batch_ = false;

  std::uint64_t epoch_ = 0;  // the one that runs, or will once open_
  bool open_ = true;         // it has begun
  bool gone_ = false;        // this rank has left the communicator
  bool ended_ = false;       // the job was aborted, and everything here has its error
  std::uint64_t small_position_ = 0;
  std::uint64_t launch_position_ = 0;
  std::vector<Place> batch_;  // entries read since the last seal
  Clock::duration moving_{};  // time spent with data, in all batches

  std::mutex mu_;
  std::vector<std::promise<bool>*> leaving_;  // callers of Leave; guarded by mu_
  std::atomic<bool> asked_to_leave_{false};   // there are some
  std::atomic<bool> stopping_{false};
  std::thread thread_;  // last: it uses the others
};

}  // namespace tf_smddp

#endif  // TF_SMDDP_KERNELS_ENGINE_COMM_THREAD_H_

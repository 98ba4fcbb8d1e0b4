// Engine: collectives among the ranks of one job. The public face of everything below kernels/tf.
//
// There are two: JobEngine for a job of several ranks (job_engine.h), LoneEngine for a job of one
// (lone_engine.h).
//
// Life: Start (meets the other ranks) -> Submit, from any thread -> Shutdown.
//
// Failures are of two kinds (docs/architecture.md, "Failure"). A step that fails, is cancelled, or disagrees
// with the other ranks' fails its communicator's *incarnation*: everything pending there ends with the reason
// on all ranks, once for each step, and the next steps of all ranks meet in the next incarnation. A rank that
// died, or corrupt shared memory, *aborts* the job: everything ends with the reason, and so does every later
// request.
#ifndef TF_SMDDP_KERNELS_ENGINE_ENGINE_H_
#define TF_SMDDP_KERNELS_ENGINE_ENGINE_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "kernels/collectives/backend.h"
#include "kernels/common/config.h"
#include "kernels/common/status.h"
#include "kernels/common/wire.h"
#include "kernels/engine/request.h"
#include "kernels/memory/arena.h"
#include "kernels/memory/shared_memory.h"

namespace tf_smddp {

class Timeline;
struct EngineStats;

class Engine {
 public:
  // Collective: every rank must call this. Blocks until all ranks have met. A job of one rank needs nothing
  // and starts no thread. `mappings` is shared by engines of one process. Errors: InvalidArgument for
  // settings, Internal when the ranks don't come together. `arena` is the arena of an earlier engine in
  // this process, which holds this rank's tensors; nullptr makes one. `backends` move the data; all ranks
  // have the same ones. `wire` leads to the other hosts; a job of several hosts needs one.
  static Status Start(const Config& config, std::shared_ptr<MappingCache> mappings, Backends backends,
                      std::unique_ptr<Engine>* engine, std::shared_ptr<Arena> arena = nullptr,
                      std::unique_ptr<Wire> wire = nullptr);

  // Shuts down. In a forked child it leaves the threads, which exist in the parent only, and their data
  // alone.
  virtual ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // Whether this process is a forked child of the one that called Start. Any thread.
  bool InForkedChild() const;

  const Config& config() const { return config_; }

  // Makes a communicator of `ranks` (of the job; in any order, each once). Collective: every rank of the job
  // must call this, members or not, with the same ranks; blocks until all have. Sets *id, on all of them.
  // Errors: InvalidArgument (a rank that does not exist, or is named twice), Internal (the ranks disagree, or
  // there is no room: capacities are in docs/configuration.md). Any thread but the engine's own.
  virtual Status CreateCommunicator(const std::vector<int>& ranks, CommunicatorId* id) = 0;

  // The same, made by its members alone: each of them must call this, with the same ranks and the same `key`,
  // below kFirstOfMembers, which no other communicator of the job has had. Blocks until all have. Errors:
  // InvalidArgument (also: this rank is not in `ranks`; a key that is too large, or was used here), Internal
  // (the ranks disagree; if there is no room, or the ranks of a host disagree, the job has ended). Any thread
  // but the engine's own.
  virtual Status CreateCommunicatorAmong(const std::vector<int>& ranks, std::uint64_t key,
                                         CommunicatorId* id) = 0;

  // Ends a communicator; its number is never given again. Collective of those that have made it, when nothing
  // is pending there. Errors: InvalidArgument (kWorld, or no such communicator), FailedPrecondition
  // (something is pending here).
  virtual Status RemoveCommunicator(CommunicatorId id) = 0;

  // The ranks of the job that are in communicator `id`, ascending; a rank's index in them is its rank in
  // there. Empty when there is none, or after Shutdown. Any thread.
  virtual std::vector<int> RanksOf(CommunicatorId id) = 0;

  // Takes this rank out of `id` until all members have left: requests of the others no longer wait for it,
  // nor include it. Blocks until this rank's own requests there have ended. Requests that are submitted here
  // afterwards are refused. Any thread but the engine's own.
  virtual Status Leave(CommunicatorId id) = 0;

  // Blocks until all members of `id` have left; then all are back. Sets *last to the rank of the job that was
  // the last to leave: no other has taken part in more requests that have completed. Errors:
  // FailedPrecondition (this rank has not left), Internal (aborted: for one, a member has shut down and never
  // left). Any thread but the engine's own.
  virtual Status Return(CommunicatorId id, RankId* last) = 0;

  // Draws the ticket of the next group of `id` on this rank. The caller's order is the program order. Errors:
  // Internal when this step has failed, or another rank's has in its place, with the reason;
  // InvalidArgument when this rank is not in `id`. Any thread.
  virtual Status DrawTicket(CommunicatorId id, StepId step, std::uint64_t* ticket) = 0;

  // The ticket that is drawn next in the world: between two steps it is the same on all ranks, unless a
  // failure is on its way to one of them. It waits for a failure that this rank knows. 0 after shutdown. Any
  // thread.
  virtual std::uint64_t NextTicket() = 0;

  // Reports that the step that drew `ticket` has ended on this rank, `failed` or well. If not all tensors of
  // that group have been submitted by then, the other ranks would wait for them, so the incarnation fails
  // with `reason`. (If the step ended well and used none of them, TensorFlow has pruned the group, on all
  // ranks.) Any thread.
  virtual void EndGroup(CommunicatorId id, std::uint64_t ticket, bool failed, const std::string& reason) = 0;

  // Submits a request and returns its number, for Cancel; 0 when it was refused or is done already.
  //   Completion: `request.done` is called exactly once: with OK when whoever comes next on the output's
  //     stream sees the result there (in host memory: when the output holds it), and on every other rank
  //     will; with an error otherwise, and then the output's content is undefined. The completion thread
  //     calls it; or this call does, if the engine refuses the request, or the job has one rank.
  //   Ownership: input and output stay valid and are not touched by others until then. A buffer that has a
  //     stream may be used or freed afterwards in the order of that stream.
  //   Errors: InvalidArgument (op not defined for the type, root, splits or index out of range, not a member,
  //     a name that is under way already), FailedPrecondition (shut down, forked child, left), Internal
  //     (failed or aborted).
  // Any thread.
  virtual std::uint64_t Submit(Request&& request) = 0;

  // Withdraws a request because its step failed or was cancelled here. If it had not met all its peers yet,
  // the incarnation fails for all ranks with `reason`; otherwise it completes as if nothing had happened. Any
  // thread.
  virtual void Cancel(std::uint64_t id, const std::string& reason) = 0;

  // Withdraws everything that is pending here, as Cancel does. For Ctrl-C. Any thread.
  virtual void CancelAll(const std::string& reason) = 0;

  // Fails the incarnation of `id`, because step `step` cannot do its part in it. Any thread.
  virtual void FailStep(CommunicatorId id, StepId step, const std::string& reason) = 0;

  // The same for a group that belongs to no step, unless the incarnation of its ticket has failed already.
  // Any thread.
  virtual void FailGroup(CommunicatorId id, std::uint64_t ticket, const std::string& reason) = 0;

  // Sets *stats to the cost of this rank's collectives so far (statistics.h); `reset` starts from 0 again.
  // Errors: FailedPrecondition (shut down, forked child). Any thread.
  virtual Status Stats(bool reset, EngineStats* stats) = 0;

  // Writes a timeline of this rank's collectives to a file, until StopTimeline or Shutdown; see timeline.h.
  // Errors: FailedPrecondition (shut down, forked child, one is being written), Internal (the file). Any
  // thread.
  Status StartTimeline(const std::string& path);
  Status StopTimeline();

  // Calls `submit`, which submits `caller_progresses` requests to communicator `id`. Then this thread drives
  // the progress of that communicator until `ended`, or while it pays, so that no thread has to be woken. It
  // may call callbacks of other requests. `ended` may be set after this returns. Any thread but the engine's
  // own.
  virtual void SubmitAndProgress(CommunicatorId id, Caller caller, const std::function<void()>& submit,
                                 const std::atomic<bool>& ended) = 0;

  // Leaves the job in good order; a second call does nothing. It waits for pending requests at which
  // all ranks have arrived. A request that still waits for a peer is an error on all ranks, and is reported
  // here. Between hosts it waits until the ranks of all hosts have called it; after stall_timeout_ms it ends
  // the job with an error. Any thread but the engine's own.
  virtual Status Shutdown() = 0;

  // Says that the Shutdown which follows comes from the end of the process, for what other ranks report. Any
  // thread.
  virtual void NoteScriptEnd() {}

  // Returns this rank's arena, for memory that ranks reduce without copies; nullptr in a job of one rank. Any
  // thread.
  virtual std::shared_ptr<Arena> arena() = 0;

  // Ends the job for all ranks with `text`, unless it has ended. The first call of all ranks logs it. Any
  // thread.
  virtual void Abort(const std::string& text) = 0;
  // The same, when this process has written already what went wrong, so that this host's log need not.
  virtual void AbortAfterWriting(const std::string& text) = 0;

  // Returns why the job has ended for all ranks; an empty text if it has not. Any thread.
  virtual std::string AbortText() = 0;

 protected:
  explicit Engine(const Config& config);

  // The error of calls after Shutdown.
  static Status ShutDownStatus();
  // FailedPrecondition after Shutdown, or in a forked child.
  Status CheckUsable() const;
  // Checks everything about a request that does not depend on other ranks. `ranks`: of its communicator.
  Status CheckRequest(const Request& request, const std::vector<int>& ranks) const;
  // As CheckUsable, for Stats. Sets the rank and size in *stats.
  Status CheckStatsUsable(EngineStats* stats) const;
  // Logs that this rank has started; `more` is appended.
  void LogStart(const std::string& more) const;
  // Ends the timeline, which is the last part of a shutdown.
  void CloseTimeline();

  const Config config_;
  std::atomic<bool> shut_down_{false};
  const std::unique_ptr<Timeline> timeline_;

 private:
  const int fork_depth_;
};

}  // namespace tf_smddp

#endif  // TF_SMDDP_KERNELS_ENGINE_ENGINE_H_

// Engine: collectives among the ranks of one job. The public face of everything below kernels/tf.
//
// Life: Start (meets the other ranks) -> Submit, from any thread -> Shutdown. A failure on any rank aborts
// the job: all pending requests of all ranks end with the reason, and so does every later one.
#ifndef TF_SMDDP_KERNELS_ENGINE_ENGINE_H_
#define TF_SMDDP_KERNELS_ENGINE_ENGINE_H_

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>

#include "kernels/common/config.h"
#include "kernels/common/status.h"
#include "kernels/engine/request.h"
#include "kernels/memory/arena.h"
#include "kernels/memory/shared_memory.h"

namespace tf_smddp {

class CommThread;
class CompletionThread;
class Dispatcher;
class Job;
class Watcher;

class Engine {
 public:
  // Collective: every rank must call this. Blocks until all ranks have met. A job of one rank needs nothing
  // and starts no thread. `mappings` is shared by engines of one process. Errors: InvalidArgument for
  // settings, Internal when the ranks don't come together.
  static Status Start(const Config& config, std::shared_ptr<MappingCache> mappings,
                      std::unique_ptr<Engine>* engine);

  // Shuts down. In a forked child, whose threads exist in the parent only, it leaves them and what they use
  // alone.
  ~Engine();

  // Whether this process is a forked child of the one that called Start. Any thread.
  bool InForkedChild() const;

  const Config& config() const { return config_; }

  // The next group ticket of this rank, from 0. Any thread; the caller's order is the program order.
  std::uint64_t NextTicket() { return next_ticket_.fetch_add(1); }

  // Submits a request and returns its id, for Cancel.
  //   Completion: `request.done` is called exactly once: with OK when the output holds the result and every
  //   rank's
  //     will; with an error otherwise, and then the output's content is undefined. On the completion thread,
  //     or in this call when the engine refuses the request or the job has one rank.
  //   Ownership: input and output stay valid and are not touched by others until then.
  //   Errors: InvalidArgument (op not defined for the type, root or index out of range), FailedPrecondition
  //   (shut down,
  //     forked child), Internal (aborted).
  // Any thread.
  std::uint64_t Submit(Request request);

  // Withdraws a request because its step failed or was cancelled here. If it had not met all its peers yet,
  // the job ends for all ranks with `reason`; otherwise it completes as if nothing had happened. Any thread.
  void Cancel(std::uint64_t id, const std::string& reason);

  // Leaves the job in good order; a second call does nothing. Requests that are pending are waited for when
  // all their ranks have arrived; one that still waits for a peer is an error on all ranks, and is reported
  // here. Any thread but the engine's own.
  Status Shutdown();

  // This rank's arena; nullptr in a job of one rank. For memory that ranks reduce without copies. Any thread.
  Arena* arena();

  // Ends the job for all ranks with `text`. Any thread.
  void Abort(const std::string& text);

 private:
  explicit Engine(const Config& config);
  Status CheckRequest(const Request& request) const;

  const Config config_;
  const pid_t pid_;
  std::atomic<std::uint64_t> next_ticket_{0};
  std::atomic<bool> shut_down_{false};
  std::atomic<int> submitting_{0};  // threads inside Submit; Shutdown waits for them
  std::mutex shutdown_mu_;
  Status shutdown_status_;  // guarded by shutdown_mu_

  // In the order in which they need each other; all nullptr in a job of one rank.
  std::unique_ptr<Job> job_;
  std::unique_ptr<CompletionThread> completions_;
  std::unique_ptr<Dispatcher> dispatcher_;
  std::unique_ptr<CommThread> comm_;
  std::unique_ptr<Watcher> watcher_;
};

}  // namespace tf_smddp

#endif  // TF_SMDDP_KERNELS_ENGINE_ENGINE_H_

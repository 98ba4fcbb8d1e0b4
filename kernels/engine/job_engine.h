// JobEngine: the engine of a job of several ranks.
//
// Place in the stack: behind engine.h; it owns the job, its communicators and the threads of this rank.
#ifndef TF_SMDDP_KERNELS_ENGINE_JOB_ENGINE_H_
#define TF_SMDDP_KERNELS_ENGINE_JOB_ENGINE_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "kernels/common/rank_set.h"
#include "kernels/engine/core/completion_thread.h"
#include "kernels/engine/engine.h"
#include "kernels/engine/job/communicator_set.h"
#include "kernels/engine/job/job.h"
#include "kernels/engine/job/membership.h"
#include "kernels/engine/watch/stall_watch.h"
#include "kernels/engine/watch/watcher.h"

namespace tf_smddp {

class JobEngine : public Engine {
 public:
  // See Engine::Start.
  static Status Start(const Config& config, std::shared_ptr<MappingCache> mappings, Backends backends,
                      std::shared_ptr<Arena> arena, std::unique_ptr<Wire> wire,
                      std::unique_ptr<Engine>* engine);
  ~JobEngine() override;

  Status CreateCommunicator(const std::vector<int>& ranks, CommunicatorId* id) override;
  Status CreateCommunicatorAmong(const std::vector<int>& ranks, std::uint64_t key,
                                 CommunicatorId* id) override;
  Status RemoveCommunicator(CommunicatorId id) override;
  std::vector<int> RanksOf(CommunicatorId id) override;
  Status Leave(CommunicatorId id) override;
  Status Return(CommunicatorId id, RankId* last) override;
  Status DrawTicket(CommunicatorId id, StepId step, std::uint64_t* ticket) override;
  std::uint64_t NextTicket() override;
  void EndGroup(CommunicatorId id, std::uint64_t ticket, bool failed, const std::string& reason) override;
  std::uint64_t Submit(Request&& request) override;
  void Cancel(std::uint64_t id, const std::string& reason) override;
  void CancelAll(const std::string& reason) override;
  void FailStep(CommunicatorId id, StepId step, const std::string& reason) override;
  void FailGroup(CommunicatorId id, std::uint64_t ticket, const std::string& reason) override;
  Status Stats(bool reset, EngineStats* stats) override;
  void SubmitAndProgress(CommunicatorId id, Caller caller, const std::function<void()>& submit,
                         const std::atomic<bool>& ended) override;
  Status Shutdown() override;
  void NoteScriptEnd() override { script_ends_.store(true); }
  std::shared_ptr<Arena> arena() override { return job_->shared_arena(); }
  void Abort(const std::string& text) override;
  void AbortAfterWriting(const std::string& text) override;
  std::string AbortText() override;

 private:
  explicit JobEngine(const Config& config) : Engine(config) {}

  // Counts a thread before it reads shut_down_. Shutdown sets shut_down_ before it reads the count, so it
  // sees every thread that has found the engine usable.
  class Inside {
   public:
    explicit Inside(std::atomic<int>* counter) : counter_(counter) { counter_->fetch_add(1); }
    ~Inside() { counter_->fetch_sub(1); }
    Inside(const Inside&) = delete;
    Inside& operator=(const Inside&) = delete;

   private:
    std::atomic<int>* const counter_;
  };

  // Also Internal when the job was aborted.
  Status CheckUsable() const;
  Status StartThreads();
  void FailWaiting();
  std::string WhatHangs();
  std::uint64_t Refuse(const Request& request, const Status& status);
  static std::uint64_t SubmitTo(Membership* membership, Request&& request);
  void LeaveJob();
  void AwaitOtherHosts();
  RankSet MissingAtEnd();
  void LogWaitForOtherHosts();
  Status CheckMayWaitToJoin(Membership& membership);
  void Finish(Membership& membership);
  void AbortWaiting(Membership& membership, bool agreements_only);

  std::atomic<bool> script_ends_{false};
  std::atomic<Clock::rep> left_{0};  // when LeaveJob began; 0: it has not
  std::atomic<int> inside_{0};       // threads in a call that uses communicators_; Shutdown waits for them
  std::mutex shutdown_mu_;
  Status shutdown_status_;  // guarded by shutdown_mu_

  // Each uses those above it.
  std::unique_ptr<Wire> wire_;  // only in a job of several hosts
  std::mutex ring_mu_;
  bool may_ring_ = true;  // guarded by ring_mu_; other threads of the engine may use communicators_
  std::unique_ptr<Job> job_;
  std::unique_ptr<CompletionThread> completions_;
  std::unique_ptr<StallWatch> stalls_;
  std::unique_ptr<CommunicatorSet> communicators_;
  std::unique_ptr<Watcher> watcher_;
};

}  // namespace tf_smddp

#endif  // TF_SMDDP_KERNELS_ENGINE_JOB_ENGINE_H_

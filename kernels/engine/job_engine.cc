#include "kernels/engine/job_engine.h"

#include <algorithm>
#include <chrono>
#include <string>
#include <thread>
#include <utility>

#include "kernels/common/logging.h"
#include "kernels/common/thread.h"
#include "kernels/engine/watch/statistics.h"
#include "kernels/engine/watch/timeline.h"

namespace tf_smddp {
namespace {

// Ids are | communicator: 24 bits | number: 40 bits |.
constexpr int kNumberBits = 40;

// How often a caller that waits looks whether the job has been aborted.
constexpr std::chrono::milliseconds kLookAtAbort{100};

// If shutdown() takes so long after the end of the job, it will not return.
constexpr std::chrono::seconds kLongestEnd{10};

// shutdown() waits so long for other hosts without a word.
constexpr std::chrono::seconds kQuietWait{10};

// Where this thread is in Engine::SubmitAndProgress. A request that it submits there need not be counted, nor
// its membership be looked up again.
struct InProgress {
  const Engine* engine = nullptr;
  Membership* membership = nullptr;
};
thread_local InProgress in_progress;

}  // namespace

Status JobEngine::Start(const Config& config, std::shared_ptr<MappingCache> mappings, Backends backends,
                        std::shared_ptr<Arena> arena, std::unique_ptr<Wire> wire,
                        std::unique_ptr<Engine>* engine) {
  std::unique_ptr<JobEngine> starting(new JobEngine(config));
  starting->wire_ = std::move(wire);
  Status status = Job::Join(config, std::move(mappings), std::move(backends), std::move(arena),
                            starting->wire_.get(), &starting->job_);
  if (!status.ok()) return status;
  status = starting->StartThreads();
  if (!status.ok()) {
    starting->job_->Abort("rank " + std::to_string(config.rank) + " failed in init(): " + status.message());
    return status;
  }
  starting->LogStart(", arena of " + std::to_string(starting->job_->arena().bytes() >> 20) + " MiB");
  *engine = std::move(starting);
  return {};
}

Status JobEngine::StartThreads() {
  try {
    completions_ = std::make_unique<CompletionThread>();
  } catch (const ThreadRefused& refused) {
    return Internal(refused.what());
  }
  stalls_ = std::make_unique<StallWatch>(job_.get());
  communicators_ =
      std::make_unique<CommunicatorSet>(job_.get(), completions_.get(), stalls_.get(), timeline_.get());
  Status status = communicators_->OpenWorld();
  if (!status.ok()) {
    communicators_.reset();  // there is no world that Shutdown could leave
    return status;
  }
  if (wire_ != nullptr) {
    try {
      wire_->Start([this](CommunicatorId id) {
        std::lock_guard<std::mutex> lock(ring_mu_);
        if (may_ring_) communicators_->Ring(id);
      });
    } catch (const ThreadRefused& refused) {
      return Internal(refused.what());
    }
  }
  watcher_ = std::make_unique<Watcher>(job_.get(), [this] { FailWaiting(); }, [this] { return WhatHangs(); });
  status = watcher_->Start();
  if (!status.ok()) return status;
  return stalls_->Start([this](Clock::time_point before) { return communicators_->CollectWaiting(before); });
}

void JobEngine::FailWaiting() {
  std::lock_guard<std::mutex> lock(ring_mu_);
  if (!may_ring_) return;
  for (const std::shared_ptr<Membership>& membership : communicators_->All()) membership->FailWaiting();
}

// After the end of the job; "" if nothing does, as far as is known.
std::string JobEngine::WhatHangs() {
  const Clock::time_point left{Clock::duration(left_.load())};
  if (left != Clock::time_point() && Clock::now() - left > kLongestEnd) return "shutdown() has not returned";
  return stalls_->AllEnded() ? "" : "a collective has not ended";
}

JobEngine::~JobEngine() {
  if (InForkedChild()) {
    // Their destructors would join threads that are not here, and write to descriptors shared with the
    // parent.
    static_cast<void>(watcher_.release());
    static_cast<void>(communicators_.release());
    static_cast<void>(stalls_.release());
    static_cast<void>(completions_.release());
    static_cast<void>(job_.release());
    static_cast<void>(wire_.release());
    return;
  }
  Shutdown();
}

Status JobEngine::CheckUsable() const {
  Status status = Engine::CheckUsable();
  return status.ok() && job_->aborted() ? Internal(job_->AbortText()) : status;
}

std::uint64_t JobEngine::Submit(Request&& request) {
  const CommunicatorId communicator = request.communicator;
  // Shutdown, an abort or a fork may have come since the thread entered SubmitAndProgress.
  const bool usable = !shut_down_.load() && !InForkedChild() && !job_->aborted();
  if (in_progress.engine == this && in_progress.membership->communicator().id() == communicator && usable) {
    const Status status = CheckRequest(request, in_progress.membership->communicator().ranks());
    if (status.ok()) return SubmitTo(in_progress.membership, std::move(request));
  }
  const Inside inside(&inside_);
  Status status = CheckUsable();
  if (!status.ok()) return Refuse(request, status);
  const std::shared_ptr<Membership> membership = communicators_->Find(communicator);
  if (membership == nullptr) return Refuse(request, communicators_->WhyNot(communicator));
  status = CheckRequest(request, membership->communicator().ranks());
  if (!status.ok()) return Refuse(request, status);
  return SubmitTo(membership.get(), std::move(request));
}

// Counts, records and ends a request that was refused before it reached its communicator.
std::uint64_t JobEngine::Refuse(const Request& request, const Status& status) {
  if (!shut_down_.load() && !InForkedChild()) {
    if (const auto counters = communicators_->CountersOf(request.communicator))
      counters->Failed(request.operation.kind);
    if (timeline_->running()) {
      const Clock::time_point now = Clock::now();
      timeline_->Add(request, InputBytes(request), now, Cost(), now, /*failed=*/true);
    }
  }
  request.done(status);
  return 0;
}

std::uint64_t JobEngine::SubmitTo(Membership* membership, Request&& request) {
  const CommunicatorId communicator = request.communicator;
  const std::uint64_t id = membership->submission().Submit(std::move(request));
  return id == 0 ? 0 : static_cast<std::uint64_t>(communicator) << kNumberBits | id;
}

void JobEngine::SubmitAndProgress(CommunicatorId id, Caller caller, const std::function<void()>& submit,
                                  const std::atomic<bool>& ended) {
  const Inside inside(&inside_);
  const std::shared_ptr<Membership> membership = CheckUsable().ok() ? communicators_->Find(id) : nullptr;
  if (membership == nullptr) return submit();
  const InProgress outer = in_progress;
  in_progress = {this, membership.get()};
  membership->progress().SubmitAndProgress(caller, submit, ended);
  in_progress = outer;
}

Status JobEngine::Stats(bool reset, EngineStats* stats) {
  const Inside inside(&inside_);
  Status status = CheckStatsUsable(stats);
  if (status.ok() && job_->aborted()) status = Internal(job_->AbortText());
  if (!status.ok()) return status;
  communicators_->AddStats(reset, stats);
  stats->arena_bytes = job_->arena().bytes();
  stats->arena_used_bytes = job_->arena().used_bytes();
  stats->arena_peak_bytes = job_->arena().peak_bytes();
  stats->arena_refused = job_->arena().refused();
  return {};
}

Status JobEngine::CreateCommunicator(const std::vector<int>& ranks, CommunicatorId* id) {
  const Inside inside(&inside_);
  Status status = CheckUsable();
  return status.ok() ? communicators_->Create(ranks, id) : status;
}

Status JobEngine::CreateCommunicatorAmong(const std::vector<int>& ranks, std::uint64_t key,
                                          CommunicatorId* id) {
  const Inside inside(&inside_);
  Status status = CheckUsable();
  return status.ok() ? communicators_->CreateAmong(ranks, key, id) : status;
}

Status JobEngine::RemoveCommunicator(CommunicatorId id) {
  const Inside inside(&inside_);
  Status status = CheckUsable();
  return status.ok() ? communicators_->Remove(id) : status;
}

std::vector<int> JobEngine::RanksOf(CommunicatorId id) {
  const Inside inside(&inside_);
  // Also after an abort: whoever asks gets its error where a request is submitted.
  return Engine::CheckUsable().ok() ? communicators_->RanksOf(id) : std::vector<int>();
}

Status JobEngine::Leave(CommunicatorId id) {
  const Inside inside(&inside_);
  Status status = CheckUsable();
  if (!status.ok()) return status;
  const std::shared_ptr<Membership> membership = communicators_->Find(id);
  if (membership == nullptr) return communicators_->WhyNot(id);
  PendingTable& pending = membership->pending();
  pending.Refuse(FailedPrecondition("rank " + std::to_string(config_.rank) + " has left this process set"));
  while (!pending.WaitEmpty(kLookAtAbort)) {
    status = CheckMayWaitToJoin(*membership);
    if (!status.ok()) return status;
  }
  membership->sequencer().AwaitSettled();  // a failure of this rank must not come after it has left
  Absence& absence = membership->absence();
  absence.AskToLeave();
  membership->communicator().group().RingSelf();
  while (!absence.AwaitLeft(kLookAtAbort)) {
    status = CheckMayWaitToJoin(*membership);
    if (!status.ok()) return status;
  }
  return {};
}

// Another thread may end the job or the process set, and waits for the threads inside.
Status JobEngine::CheckMayWaitToJoin(Membership& membership) {
  if (shut_down_.load() && !job_->aborted()) {
    job_->Abort("rank " + std::to_string(config_.rank) + " called shutdown() while it waited in join()");
  }
  if (job_->aborted()) return Internal(job_->AbortText());
  const CommunicatorId id = membership.communicator().id();
  if (communicators_->Find(id).get() == &membership) return {};
  return FailedPrecondition("process set " + std::to_string(id) + " was removed while rank " +
                            std::to_string(config_.rank) + " waited in join()");
}

Status JobEngine::Return(CommunicatorId id, RankId* last) {
  const Inside inside(&inside_);
  Status status = CheckUsable();
  if (!status.ok()) return status;
  const std::shared_ptr<Membership> membership = communicators_->Find(id);
  if (membership == nullptr) return communicators_->WhyNot(id);
  membership->communicator().group().RingSelf();
  while (!membership->absence().AwaitReturn(kLookAtAbort, last)) {
    status = CheckMayWaitToJoin(*membership);
    if (!status.ok()) return status;
  }
  if (!last->valid()) {
    return FailedPrecondition("rank " + std::to_string(config_.rank) + " has not left process set " +
                              std::to_string(id));
  }
  return {};
}

Status JobEngine::DrawTicket(CommunicatorId id, StepId step, std::uint64_t* ticket) {
  const Inside inside(&inside_);
  Status status = CheckUsable();
  if (!status.ok()) return status;
  const std::shared_ptr<Membership> membership = communicators_->Find(id);
  if (membership == nullptr) return communicators_->WhyNot(id);
  return membership->sequencer().DrawTicket(step, ticket);
}

std::uint64_t JobEngine::NextTicket() {
  const Inside inside(&inside_);
  const std::shared_ptr<Membership> world = CheckUsable().ok() ? communicators_->Find(kWorld) : nullptr;
  return world == nullptr ? 0 : world->sequencer().NextTicket();
}

void JobEngine::EndGroup(CommunicatorId id, std::uint64_t ticket, bool failed, const std::string& reason) {
  const Inside inside(&inside_);
  if (!CheckUsable().ok()) return;
  if (const std::shared_ptr<Membership> membership = communicators_->Find(id)) {
    membership->failures().EndGroup(ticket, failed, reason);
  }
}

void JobEngine::Cancel(std::uint64_t id, const std::string& reason) {
  const Inside inside(&inside_);
  if (!CheckUsable().ok()) return;
  const auto communicator = static_cast<CommunicatorId>(id >> kNumberBits);
  if (const std::shared_ptr<Membership> membership = communicators_->Find(communicator)) {
    membership->failures().Cancel(id & ((std::uint64_t{1} << kNumberBits) - 1), reason);
  }
}

void JobEngine::CancelAll(const std::string& reason) {
  const Inside inside(&inside_);
  if (!CheckUsable().ok()) return;
  for (const std::shared_ptr<Membership>& membership : communicators_->All()) {
    membership->failures().CancelAll(reason);
  }
}

void JobEngine::FailGroup(CommunicatorId id, std::uint64_t ticket, const std::string& reason) {
  const Inside inside(&inside_);
  if (!CheckUsable().ok()) return;
  if (const std::shared_ptr<Membership> membership = communicators_->Find(id)) {
    membership->failures().FailGroup(ticket, reason);
  }
}

void JobEngine::FailStep(CommunicatorId id, StepId step, const std::string& reason) {
  const Inside inside(&inside_);
  if (!CheckUsable().ok()) return;
  if (const std::shared_ptr<Membership> membership = communicators_->Find(id)) {
    membership->failures().FailStep(step, reason);
  }
}

Status JobEngine::Shutdown() {
  if (InForkedChild()) return {};
  std::lock_guard<std::mutex> lock(shutdown_mu_);
  if (shut_down_.exchange(true) || communicators_ == nullptr) return shutdown_status_;
  LeaveJob();
  CloseTimeline();
  return shutdown_status_;
}

void JobEngine::LeaveJob() {
  left_.store(Clock::now().time_since_epoch().count());
  // A thread that is inside may be writing to shared memory; the end of the process must not cut it off.
  for (int tries = 1; inside_.load() > 0; ++tries) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    // A thread that makes or removes a process set waits for other ranks, and this rank would wait with it.
    if (tries % 100 != 0) continue;
    for (const std::shared_ptr<Membership>& membership : communicators_->All()) {
      AbortWaiting(*membership, /*agreements_only=*/true);
    }
  }
  for (const std::shared_ptr<Membership>& membership : communicators_->All()) Finish(*membership);
  RankRecord& record = job_->segment().rank(config_.local_rank);
  record.steps.store(communicators_->CountersOf(kWorld)->steps(), std::memory_order_relaxed);
  record.left.store(script_ends_.load() ? RankRecord::kScriptEnded : RankRecord::kCalledShutdown,
                    std::memory_order_seq_cst);
  job_->RingAll();
  if (wire_ != nullptr) AwaitOtherHosts();
  {
    std::lock_guard<std::mutex> lock(ring_mu_);
    may_ring_ = false;
  }
  stalls_->Stop();  // it looks at the communicators
  communicators_.reset();
  completions_.reset();  // after the progress threads, which feed it
  if (wire_ != nullptr) wire_->Stop(/*in_order=*/!job_->aborted());
  watcher_.reset();  // until here, a thread may be in a call that does not return
}

// Other ranks may still need this rank's relays, or what they have sent. So the ranks of several hosts end
// together, as in MPI_Finalize.
void JobEngine::AwaitOtherHosts() {
  Communicator& world = communicators_->Find(kWorld)->communicator();
  const Clock::time_point begin = Clock::now();
  const Clock::duration limit = std::chrono::milliseconds(config_.stall_timeout_ms);
  const bool limited = limit > Clock::duration::zero();
  bool said = false;
  while (!job_->aborted() && !world.AllAreKnownToHaveShutDown()) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    const Clock::duration waited = Clock::now() - begin;
    if (!said && waited > (limited ? std::min<Clock::duration>(kQuietWait, limit / 2) : kQuietWait)) {
      said = true;
      LogWaitForOtherHosts();
    }
    if (!limited || waited < limit) continue;
    const RankSet missing = MissingAtEnd();
    Clock::time_point last_work;
    for (const RankId rank : missing.ranks()) last_work = std::max(last_work, job_->last_work(rank));
    if (missing.empty() || Clock::now() - last_work < limit) continue;
    shutdown_status_ = Internal("rank " + std::to_string(config_.rank) + " waited in shutdown() for " +
                                RankList(missing) + ", longer than SMDDP_STALL_TIMEOUT allows");
    job_->Abort(shutdown_status_.message());
  }
}

// The ranks that are not known to have shut down.
RankSet JobEngine::MissingAtEnd() {
  RankSet missing;
  for (int rank = 0; rank < config_.size; ++rank) {
    const std::uint64_t word = job_->segment().shut_down(rank / 64).load();
    if ((word >> rank % 64 & 1) == 0) missing.Add(RankId(rank));
  }
  return missing;
}

// One rank that waits writes it for all.
void JobEngine::LogWaitForOtherHosts() {
  const RankSet missing = MissingAtEnd();
  int first = 0;
  while (first < config_.rank && missing.Contains(RankId(first))) ++first;
  if (first != config_.rank || missing.empty()) return;
  job_->logger().Log(LogLevel::kWarning,
                     "shutdown() waits for " + RankList(missing) +
                         ": the ranks of several hosts end together. SMDDP_STALL_TIMEOUT limits "
                         "the wait, unless they compute");
}

// Waits for the pending requests that can complete.
void JobEngine::Finish(Membership& membership) {
  membership.pending().Refuse(ShutDownStatus());
  while (!membership.pending().WaitEmpty(std::chrono::milliseconds(10))) {
    AbortWaiting(membership, /*agreements_only=*/false);
  }
  // A failure that this rank has found may still be on its way to the head. Until it is back, others would
  // think that they wait for this rank.
  if (membership.communicator().wired()) membership.sequencer().AwaitSettled();
}

void JobEngine::AbortWaiting(Membership& membership, bool agreements_only) {
  std::string waiting;
  membership.pending().ForEach([&](const PendingRequest& request, bool entered) {
    if (agreements_only && request.request.operation.kind != CollectiveKind::kCommunicator) return;
    if (!entered || !membership.IsReady(request)) waiting = DescribeManifest(request.manifest);
  });
  if (waiting.empty() || job_->aborted()) return;
  shutdown_status_ =
      FailedPrecondition("rank " + std::to_string(config_.rank) + " called shutdown() while its " + waiting +
                         " was waiting for other ranks");
  job_->Abort(shutdown_status_.message());
}

void JobEngine::Abort(const std::string& text) {
  if (!InForkedChild()) job_->Abort(text);
}

void JobEngine::AbortAfterWriting(const std::string& text) {
  if (!InForkedChild()) job_->Abort(text, /*written=*/true);
}

std::string JobEngine::AbortText() { return !InForkedChild() && job_->aborted() ? job_->AbortText() : ""; }

}  // namespace tf_smddp

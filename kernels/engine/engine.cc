#include "kernels/engine/engine.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <thread>
#include <utility>

#include "kernels/collectives/collective.h"
#include "kernels/common/affinity.h"
#include "kernels/common/logging.h"
#include "kernels/common/thread.h"
#include "kernels/common/version.h"
#include "kernels/engine/communicator_set.h"
#include "kernels/engine/completion_thread.h"
#include "kernels/engine/job.h"
#include "kernels/engine/membership.h"
#include "kernels/engine/resolve.h"
#include "kernels/engine/stall_watch.h"
#include "kernels/engine/statistics.h"
#include "kernels/engine/timeline.h"
#include "kernels/engine/watcher.h"
#include "kernels/memory/fork_guard.h"
#include "kernels/reduce/reduce.h"

namespace tf_smddp {
namespace {

// Ids are | communicator: 24 bits | number: 40 bits |.
constexpr int kNumberBits = 40;

// What a finished engine tells those that call it all the same.
Status ShutDownStatus() {
  return FailedPrecondition("tf_smddp has been shut down; collectives run between init() and shutdown()");
}

std::string HostName() {
  char name[256] = "";
  if (::gethostname(name, sizeof name - 1) != 0) return "unknown host";
  return name;
}

// Once for the job: what a launcher does to one rank, it does to all, as a rule.
void WarnOfLauncher(const Config& config) {
  const Logger logger(static_cast<LogLevel>(config.log_level), config.rank);
  for (const std::string& warning : {config.note, AffinityWarning(config)}) {
    if (!warning.empty()) logger.Log(config.rank == 0 ? LogLevel::kWarning : LogLevel::kInfo, warning);
  }
}

// `job` is nullptr in a job of one rank.
void LogStart(const Config& config, Job* job) {
  const Logger logger(static_cast<LogLevel>(config.log_level), config.rank);
  std::string text = std::string("tf_smddp ") + kVersion + ": rank " + std::to_string(config.rank) + " of " +
                     std::to_string(config.size) + " on " + HostName() + ", pid " +
                     std::to_string(::getpid());
  if (job != nullptr) text += ", arena of " + std::to_string(job->arena().bytes() >> 20) + " MiB";
  logger.Log(LogLevel::kInfo, text + ", reductions on " + ReduceTarget());
}

// A job of one rank: nobody to wait for.
Status RunAlone(const Request& request) {
  const Collective& collective = FindCollective(request.kind);
  Call call = CallOf(request);
  call.root = 0;
  if (RowsMayDiffer(request.kind)) call.rows = {call.num_rows};
  void* output = request.output;
  if (collective.reach() == Collective::Reach::kOwnOutput) {
    Status status = request.allocate(collective.OutputRows(call, 0), &output);
    if (!status.ok()) return status;
  }
  const std::uint64_t count = collective.OutputCount(call, 0);
  if (count > 0) collective.Direct(call, 0, &request.input, &output, 0, count);
  return {};
}

Status CheckReduction(const Request& request) {
  const auto what = [&request] { return std::string(CollectiveKindName(request.kind)) + " with "; };
  if (!ReduceOpDefined(request.dtype, request.op)) {
    return InvalidArgument(
        what() + "op " + ReduceOpName(request.op) + " is not defined for " + DTypeName(request.dtype) +
        (request.dtype == DType::kBool
             ? "; use min (logical and) or max (logical or), or cast"
             : ", which has no order; reduce the real and the imaginary part by themselves"));
  }
  if (!std::isfinite(request.prescale) || !std::isfinite(request.postscale)) {
    return InvalidArgument(what() + "prescale " + std::to_string(request.prescale) + " and postscale " +
                           std::to_string(request.postscale) + "; both must be finite");
  }
  if (!IsInexact(request.dtype) && (request.prescale != 1.0 || request.postscale != 1.0)) {
    return InvalidArgument(what() + "prescale " + std::to_string(request.prescale) + " and postscale " +
                           std::to_string(request.postscale) + " is not defined for " +
                           DTypeName(request.dtype) + "; cast to a floating type first");
  }
  return {};
}

Status CheckSplits(const Request& request, std::size_t size) {
  if (request.splits.size() != size) {
    return InvalidArgument("alltoall with " + std::to_string(request.splits.size()) + " splits for " +
                           std::to_string(size) + " ranks; give one number of rows for each");
  }
  std::int64_t left = request.shape[0];
  for (const std::int64_t rows : request.splits) {
    if (rows < 0) return InvalidArgument("alltoall with a split of " + std::to_string(rows) + " rows");
    if (rows > left) left = -1;
    if (left >= 0) left -= rows;
  }
  if (left == 0) return {};
  return InvalidArgument("alltoall whose splits do not add up to its tensor's " +
                         std::to_string(request.shape[0]) + " rows");
}

// Where this thread is in Engine::Assist. What it submits there need not be counted and looked up again.
struct Assisted {
  const Engine* engine = nullptr;
  Membership* membership = nullptr;
};
thread_local Assisted assisted;

}  // namespace

Engine::Engine(const Config& config)
    : config_(config), fork_depth_(ForkDepth()), timeline_(std::make_unique<Timeline>()) {}

Status Engine::Start(const Config& config, std::shared_ptr<MappingCache> mappings,
                     std::unique_ptr<Engine>* engine, std::shared_ptr<Arena> arena) {
  Status status = ValidateConfig(config);
  if (!status.ok()) return status;
  std::unique_ptr<Engine> starting(new Engine(config));
  WarnOfLauncher(config);
  if (config.size > 1) {
    status = Job::Join(config, std::move(mappings), std::move(arena), &starting->job_);
    if (!status.ok()) return status;
    try {
      starting->completions_ = std::make_unique<CompletionThread>();
    } catch (const ThreadRefused& refused) {
      starting->job_->Abort("rank " + std::to_string(config.rank) + " failed in init(): " + refused.what());
      return Internal(refused.what());
    }
    starting->stalls_ = std::make_unique<StallWatch>(starting->job_.get());
  }
  Job* job = starting->job_.get();
  starting->communicators_ =
      std::make_unique<CommunicatorSet>(starting->config_, job, starting->completions_.get(),
                                        starting->stalls_.get(), starting->timeline_.get());
  status = starting->communicators_->OpenWorld();
  if (status.ok() && job != nullptr) {
    starting->watcher_ = std::make_unique<Watcher>(job);
    status = starting->watcher_->Start();
  }
  if (status.ok() && job != nullptr) {
    CommunicatorSet* communicators = starting->communicators_.get();
    status = starting->stalls_->Start(
        [communicators](Clock::time_point before) { return communicators->CollectWaiting(before); });
  }
  if (!status.ok()) {
    if (job != nullptr) {
      job->Abort("rank " + std::to_string(config.rank) + " failed in init(): " + status.message());
    }
    return status;
  }
  LogStart(config, job);
  *engine = std::move(starting);
  return {};
}

Engine::~Engine() {
  if (InForkedChild()) {
    // Their destructors would join threads that are not here, and write to descriptors shared with the
    // parent.
    static_cast<void>(watcher_.release());
    static_cast<void>(communicators_.release());
    static_cast<void>(stalls_.release());
    static_cast<void>(completions_.release());
    static_cast<void>(job_.release());
    static_cast<void>(timeline_.release());
    return;
  }
  Shutdown();
}

bool Engine::InForkedChild() const { return ForkDepth() != fork_depth_; }

Status Engine::CheckUsable() const {
  if (InForkedChild()) {
    // The threads of the engine exist in the parent only.
    return FailedPrecondition("a collective was called in a forked child of rank " +
                              std::to_string(config_.rank) +
                              "; call it in the process that called init(), or start children with 'spawn'");
  }
  if (shut_down_.load()) return ShutDownStatus();
  return job_ != nullptr && job_->aborted() ? Internal(job_->AbortText()) : Status();
}

Status Engine::CheckRequest(const Request& request, const std::vector<int>& ranks) const {
  if (IsReduction(request.kind)) {
    Status status = CheckReduction(request);
    if (!status.ok()) return status;
  }
  if (request.kind == CollectiveKind::kBroadcast &&
      std::find(ranks.begin(), ranks.end(), request.root) == ranks.end()) {
    return InvalidArgument("broadcast with root rank " + std::to_string(request.root) +
                           (request.communicator == kWorld
                                ? ", but the ranks are 0 to " + std::to_string(config_.size - 1)
                                : ", which is not in process set " + std::to_string(request.communicator)));
  }
  if (FindCollective(request.kind).reach() == Collective::Reach::kOwnOutput && request.shape.empty()) {
    return InvalidArgument(std::string(CollectiveKindName(request.kind)) +
                           " of a scalar, which has no rows; reshape it to [1]");
  }
  if (request.kind == CollectiveKind::kAlltoall) {
    Status status = CheckSplits(request, ranks.size());
    if (!status.ok()) return status;
  }
  const Pairing& pairing = request.pairing;
  if (pairing.kind == Pairing::kGroup && pairing.param_index >= pairing.num_params) {
    return InvalidArgument("param_index is " + std::to_string(pairing.param_index) +
                           ", not below num_params, which is " + std::to_string(pairing.num_params));
  }
  return {};
}

std::uint64_t Engine::SubmitTo(Membership* membership, Request&& request) {
  const CommunicatorId communicator = request.communicator;
  const std::uint64_t id = membership->submission().Submit(std::move(request));
  return id == 0 ? 0 : static_cast<std::uint64_t>(communicator) << kNumberBits | id;
}

std::uint64_t Engine::Submit(Request&& request) {
  const CommunicatorId communicator = request.communicator;
  Status status;
  // Shutdown, an abort or a fork may have come meanwhile.
  const bool usable = !shut_down_.load() && !InForkedChild() && (job_ == nullptr || !job_->aborted());
  if (assisted.engine == this && assisted.membership->communicator().id() == communicator && usable) {
    status = CheckRequest(request, assisted.membership->communicator().ranks());
    if (status.ok()) return SubmitTo(assisted.membership, std::move(request));
  }
  const Inside inside(&inside_);
  std::shared_ptr<Membership> membership;
  if (status.ok()) status = CheckUsable();
  if (status.ok()) {
    membership = communicators_->Find(communicator);
    if (membership != nullptr) {
      status = CheckRequest(request, membership->communicator().ranks());
    } else if (job_ == nullptr && !communicators_->RanksOf(communicator).empty()) {
      status = CheckRequest(request, {0});
    } else {
      status = communicators_->WhyNot(communicator);
    }
  }
  if (status.ok() && membership != nullptr) return SubmitTo(membership.get(), std::move(request));
  const std::shared_ptr<CommunicatorCounters> counters =
      shut_down_.load() || InForkedChild() ? nullptr : communicators_->CountersOf(communicator);
  const Clock::time_point begin = Clock::now();
  if (status.ok()) status = RunAlone(request);
  Cost cost;
  cost.begun = begin;
  cost.moving = Clock::now() - begin;
  cost.in_place = request.input != nullptr && request.output == request.input;
  if (counters != nullptr && status.ok()) counters->Completed(request.kind, InputBytes(request), cost);
  if (counters != nullptr && !status.ok()) counters->Failed(request.kind);
  if (timeline_->running() && !InForkedChild()) {
    timeline_->Add(request, InputBytes(request), begin, cost, begin + cost.moving, !status.ok());
  }
  request.done(status);
  return 0;
}

void Engine::Assist(CommunicatorId id, Caller caller, const std::function<void()>& submit,
                    const std::atomic<bool>& ended) {
  const Inside inside(&inside_);
  const std::shared_ptr<Membership> membership = CheckUsable().ok() ? communicators_->Find(id) : nullptr;
  if (membership == nullptr) return submit();
  const Assisted outer = assisted;
  assisted = {this, membership.get()};
  membership->progress().SubmitAndDrive(caller, submit, ended);
  assisted = outer;
}

Status Engine::Stats(bool reset, EngineStats* stats) {
  const Inside inside(&inside_);
  if (InForkedChild()) {
    return FailedPrecondition("this is a forked child of rank " + std::to_string(config_.rank) +
                              ", which has no figures; ask in the process that called init()");
  }
  Status status = CheckUsable();
  if (!status.ok()) return status;
  stats->rank = config_.rank;
  stats->size = config_.size;
  communicators_->AddStats(reset, stats);
  if (job_ != nullptr) {
    stats->arena_bytes = job_->arena().bytes();
    stats->arena_used_bytes = job_->arena().used_bytes();
    stats->arena_peak_bytes = job_->arena().peak_bytes();
    stats->arena_refused = job_->arena().refused();
  }
  return {};
}

Status Engine::StartTimeline(const std::string& path) {
  const Inside inside(&inside_);
  Status status = CheckUsable();
  return status.ok() ? timeline_->Start(path, config_.rank) : status;
}

Status Engine::StopTimeline() {
  if (InForkedChild()) return CheckUsable();
  return timeline_->Stop();
}

Status Engine::CreateCommunicator(const std::vector<int>& ranks, CommunicatorId* id) {
  const Inside inside(&inside_);
  Status status = CheckUsable();
  return status.ok() ? communicators_->Create(ranks, id) : status;
}

Status Engine::RemoveCommunicator(CommunicatorId id) {
  const Inside inside(&inside_);
  Status status = CheckUsable();
  return status.ok() ? communicators_->Remove(id) : status;
}

std::vector<int> Engine::RanksOf(CommunicatorId id) {
  const Inside inside(&inside_);
  return CheckUsable().ok() ? communicators_->RanksOf(id) : std::vector<int>();
}

Status Engine::Leave(CommunicatorId id) {
  const Inside inside(&inside_);
  Status status = CheckUsable();
  if (!status.ok()) return status;
  const std::shared_ptr<Membership> membership = communicators_->Find(id);
  if (membership == nullptr) return job_ == nullptr ? Status() : communicators_->WhyNot(id);
  PendingTable& pending = membership->pending();
  pending.Refuse(FailedPrecondition("rank " + std::to_string(config_.rank) + " has left this process set"));
  while (!pending.WaitEmpty(std::chrono::milliseconds(100))) {
    if (job_->aborted()) return Internal(job_->AbortText());
  }
  return membership->progress().Leave() ? Status() : Internal(job_->AbortText());
}

Status Engine::DrawTicket(CommunicatorId id, StepId step, std::uint64_t* ticket) {
  const Inside inside(&inside_);
  Status status = CheckUsable();
  if (!status.ok()) return status;
  if (const std::shared_ptr<Membership> membership = communicators_->Find(id)) {
    return membership->sequencer().DrawTicket(step, ticket);
  }
  if (job_ != nullptr || communicators_->RanksOf(id).empty()) return communicators_->WhyNot(id);
  *ticket = lone_tickets_.fetch_add(1);
  return {};
}

void Engine::EndGroup(CommunicatorId id, std::uint64_t ticket, bool failed, const std::string& reason) {
  const Inside inside(&inside_);
  if (!CheckUsable().ok()) return;
  if (const std::shared_ptr<Membership> membership = communicators_->Find(id)) {
    membership->failures().EndGroup(ticket, failed, reason);
  }
}

void Engine::Cancel(std::uint64_t id, const std::string& reason) {
  const Inside inside(&inside_);
  if (!CheckUsable().ok()) return;
  const auto communicator = static_cast<CommunicatorId>(id >> kNumberBits);
  if (const std::shared_ptr<Membership> membership = communicators_->Find(communicator)) {
    membership->failures().Cancel(id & ((std::uint64_t{1} << kNumberBits) - 1), reason);
  }
}

void Engine::CancelAll(const std::string& reason) {
  const Inside inside(&inside_);
  if (!CheckUsable().ok()) return;
  for (const std::shared_ptr<Membership>& membership : communicators_->All()) {
    membership->failures().CancelAll(reason);
  }
}

void Engine::FailStep(CommunicatorId id, StepId step, const std::string& reason) {
  const Inside inside(&inside_);
  if (!CheckUsable().ok()) return;
  if (const std::shared_ptr<Membership> membership = communicators_->Find(id)) {
    membership->failures().FailStep(step, reason);
  }
}

Status Engine::Shutdown() {
  if (InForkedChild()) return {};
  std::lock_guard<std::mutex> lock(shutdown_mu_);
  if (shut_down_.exchange(true) || communicators_ == nullptr) return shutdown_status_;
  if (job_ != nullptr) LeaveJob();
  const Status written = timeline_->Stop();
  if (!written.ok()) {
    Logger(static_cast<LogLevel>(config_.log_level), config_.rank).Log(LogLevel::kWarning, written.message());
  }
  return shutdown_status_;
}

void Engine::LeaveJob() {
  // One that is inside may be writing to shared memory, and must not be cut off by the end of the process.
  for (int tries = 1; inside_.load() > 0; ++tries) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    // One that makes or removes a process set waits for other ranks in there, and we would wait with it.
    if (tries % 100 == 0) AbortWaiting(*communicators_->Find(kWorld), /*agreements_only=*/true);
  }
  for (const std::shared_ptr<Membership>& membership : communicators_->All()) Finish(*membership);
  job_->segment().rank(config_.rank).left.store(1, std::memory_order_seq_cst);
  job_->RingAll();
  watcher_.reset();
  stalls_->Stop();  // it looks at the communicators
  communicators_.reset();
  completions_.reset();  // after the comm threads, which feed it; runs what is queued
}

// Waits for what is pending and can complete.
void Engine::Finish(Membership& membership) {
  membership.pending().Refuse(ShutDownStatus());
  while (!membership.pending().WaitEmpty(std::chrono::milliseconds(10))) {
    AbortWaiting(membership, /*agreements_only=*/false);
  }
}

void Engine::AbortWaiting(Membership& membership, bool agreements_only) {
  std::string waiting;
  membership.pending().ForEach([&](const PendingRequest& request, bool entered) {
    if (agreements_only && request.request.kind != CollectiveKind::kCommunicator) return;
    if (!entered || !membership.IsReady(request)) waiting = DescribeManifest(request.manifest);
  });
  if (waiting.empty() || job_->aborted()) return;
  shutdown_status_ =
      FailedPrecondition("rank " + std::to_string(config_.rank) + " called shutdown() while its " + waiting +
                         " was waiting for other ranks");
  job_->Abort(shutdown_status_.message());
}

std::shared_ptr<Arena> Engine::arena() { return job_ == nullptr ? nullptr : job_->shared_arena(); }

void Engine::Abort(const std::string& text) {
  if (job_ != nullptr && !InForkedChild()) job_->Abort(text);
}

}  // namespace tf_smddp

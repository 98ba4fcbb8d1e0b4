#include "kernels/engine/engine.h"

#include <unistd.h>

#include <chrono>
#include <cstring>
#include <thread>
#include <utility>

#include "kernels/engine/comm_thread.h"
#include "kernels/engine/completion_thread.h"
#include "kernels/engine/dispatcher.h"
#include "kernels/engine/job.h"
#include "kernels/engine/watcher.h"

namespace tf_smddp {
namespace {

// What a finished engine tells those that call it all the same.
Status ShutDownStatus() {
  return FailedPrecondition("tf_smddp has been shut down; collectives run between init() and shutdown()");
}

// A job of one rank: the result is the input.
void RunAlone(const Request& request, std::uint64_t bytes) {
  if (bytes > 0 && request.output != request.input) std::memcpy(request.output, request.input, bytes);
}

}  // namespace

Engine::Engine(const Config& config) : config_(config), pid_(::getpid()) {}

Status Engine::Start(const Config& config, std::shared_ptr<MappingCache> mappings,
                     std::unique_ptr<Engine>* engine) {
  Status status = ValidateConfig(config);
  if (!status.ok()) return status;
  std::unique_ptr<Engine> starting(new Engine(config));
  if (config.size > 1) {
    status = Job::Join(config, std::move(mappings), &starting->job_);
    if (!status.ok()) return status;
    Job* job = starting->job_.get();
    starting->completions_ = std::make_unique<CompletionThread>();
    starting->dispatcher_ = std::make_unique<Dispatcher>(job, starting->completions_.get());
    starting->comm_ = std::make_unique<CommThread>(job, starting->dispatcher_.get());
    starting->watcher_ = std::make_unique<Watcher>(job);
    status = starting->watcher_->Start();
    if (!status.ok()) {
      job->Abort("rank " + std::to_string(config.rank) + " failed in init(): " + status.message());
      return status;
    }
  }
  *engine = std::move(starting);
  return {};
}

Engine::~Engine() {
  if (InForkedChild()) {
    // Their destructors would join threads that are not here, and write to descriptors shared with the
    // parent.
    static_cast<void>(watcher_.release());
    static_cast<void>(comm_.release());
    static_cast<void>(dispatcher_.release());
    static_cast<void>(completions_.release());
    static_cast<void>(job_.release());
    return;
  }
  Shutdown();
}

bool Engine::InForkedChild() const { return ::getpid() != pid_; }

Status Engine::CheckRequest(const Request& request) const {
  if (!ReduceOpDefined(request.dtype, request.op) && request.kind == CollectiveKind::kAllreduce) {
    return InvalidArgument(std::string("allreduce with op ") + ReduceOpName(request.op) +
                           " is not defined for " + DTypeName(request.dtype) +
                           "; use min (logical and) or max (logical or), or cast");
  }
  if (request.kind == CollectiveKind::kBroadcast && (request.root < 0 || request.root >= config_.size)) {
    return InvalidArgument("broadcast with root rank " + std::to_string(request.root) +
                           ", but the ranks are 0 to " + std::to_string(config_.size - 1));
  }
  const Pairing& pairing = request.pairing;
  if (pairing.kind == Pairing::kGroup && pairing.param_index >= pairing.num_params) {
    return InvalidArgument("param_index is " + std::to_string(pairing.param_index) +
                           ", not below num_params, which is " + std::to_string(pairing.num_params));
  }
  return {};
}

std::uint64_t Engine::Submit(Request request) {
  // Counted before shut_down_ is read, so that Shutdown, which does the reverse, sees every thread that goes
  // on.
  struct Counted {
    explicit Counted(std::atomic<int>* counter) : counter(counter) { counter->fetch_add(1); }
    ~Counted() { counter->fetch_sub(1); }
    std::atomic<int>* const counter;
  };
  const Counted counted(&submitting_);
  Status status;
  if (InForkedChild()) {
    // The threads of the engine exist in the parent only.
    status = FailedPrecondition(
        "a collective was called in a forked child of rank " + std::to_string(config_.rank) +
        "; call it in the process that called init(), or start children with 'spawn'");
  } else if (shut_down_.load()) {
    status = ShutDownStatus();
  } else {
    status = CheckRequest(request);
  }
  if (!status.ok()) {
    request.done(status);
    return 0;
  }
  if (dispatcher_ != nullptr) return dispatcher_->Submit(std::move(request));
  std::uint64_t bytes = DTypeBytes(request.dtype);
  for (const std::int64_t dim : request.shape) bytes *= static_cast<std::uint64_t>(dim);
  RunAlone(request, bytes);
  request.done(Status());
  return 0;
}

void Engine::Cancel(std::uint64_t id, const std::string& reason) {
  if (dispatcher_ != nullptr && !InForkedChild()) dispatcher_->Cancel(id, reason);
}

Status Engine::Shutdown() {
  if (InForkedChild()) return {};
  std::lock_guard<std::mutex> lock(shutdown_mu_);
  if (shut_down_.exchange(true) || comm_ == nullptr) return shutdown_status_;
  // One that is inside may be writing to shared memory, and must not be cut off by the end of the process.
  while (submitting_.load() > 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  PendingTable& pending = dispatcher_->pending();
  pending.Refuse(ShutDownStatus());
  while (!pending.WaitEmpty(std::chrono::milliseconds(10))) {
    std::string waiting;
    pending.ForEach([&](const PendingRequest& request, bool entered) {
      if (entered && job_->control().table().ArrivedMask(request.slot, request.ticket) == job_->everyone())
        return;
      waiting = DescribeManifest(request.manifest);
    });
    if (waiting.empty() || job_->aborted()) continue;
    shutdown_status_ =
        FailedPrecondition("rank " + std::to_string(config_.rank) + " called shutdown() while its " +
                           waiting + " was waiting for other ranks");
    job_->Abort(shutdown_status_.message());
  }
  job_->self().left.store(1, std::memory_order_seq_cst);
  job_->RingOthers();
  watcher_.reset();
  comm_.reset();
  completions_.reset();  // after the comm thread, which feeds it; runs what is queued
  return shutdown_status_;
}

Arena* Engine::arena() { return job_ == nullptr ? nullptr : &job_->arena(); }

void Engine::Abort(const std::string& text) {
  if (job_ != nullptr && !InForkedChild()) job_->Abort(text);
}

}  // namespace tf_smddp

#include "kernels/engine/engine.h"

#include <unistd.h>

#include <utility>

#include "kernels/collectives/collective.h"
#include "kernels/common/affinity.h"
#include "kernels/common/logging.h"
#include "kernels/common/process.h"
#include "kernels/common/version.h"
#include "kernels/engine/job_engine.h"
#include "kernels/engine/lone_engine.h"
#include "kernels/engine/watch/statistics.h"
#include "kernels/engine/watch/timeline.h"
#include "kernels/memory/fork_guard.h"
#include "kernels/reduce/reduce.h"

namespace tf_smddp {
namespace {

// Rank 0 warns for the job, since a launcher usually treats all ranks alike.
void WarnOfLauncher(const Config& config) {
  const Logger logger(static_cast<LogLevel>(config.log_level), config.rank);
  for (const std::string& warning : {config.note, AffinityWarning(config)}) {
    if (!warning.empty()) logger.Log(config.rank == 0 ? LogLevel::kWarning : LogLevel::kInfo, warning);
  }
}

}  // namespace

Engine::Engine(const Config& config)
    : config_(config), timeline_(std::make_unique<Timeline>()), fork_depth_(ForkDepth()) {}

Engine::~Engine() = default;

Status Engine::Start(const Config& config, std::shared_ptr<MappingCache> mappings, Backends backends,
                     std::unique_ptr<Engine>* engine, std::shared_ptr<Arena> arena,
                     std::unique_ptr<Wire> wire) {
  Status status = ValidateConfig(config);
  if (!status.ok()) return status;
  const bool one_host = config.local_size == config.size;
  if (one_host != (wire == nullptr)) {
    return InvalidArgument("a job needs a wire if, and only if, it has several hosts; it has " +
                           std::to_string(config.size) + " ranks, and " + std::to_string(config.local_size) +
                           " on this host");
  }
  WarnOfLauncher(config);
  if (config.size > 1) {
    return JobEngine::Start(config, std::move(mappings), std::move(backends), std::move(arena),
                            std::move(wire), engine);
  }
  *engine = std::make_unique<LoneEngine>(config);
  return {};
}

bool Engine::InForkedChild() const { return ForkDepth() != fork_depth_; }

Status Engine::ShutDownStatus() {
  return FailedPrecondition("tf_smddp has been shut down; collectives run between init() and shutdown()");
}

Status Engine::CheckUsable() const {
  if (InForkedChild()) {
    // The threads of the engine exist in the parent only.
    return FailedPrecondition("a collective was called in a forked child of rank " +
                              std::to_string(config_.rank) +
                              "; call it in the process that called init(), or start children with 'spawn'");
  }
  return shut_down_.load() ? ShutDownStatus() : Status();
}

Status Engine::CheckRequest(const Request& request, const std::vector<int>& ranks) const {
  const Pairing& pairing = request.pairing;
  if (pairing.kind == Pairing::kGroup && pairing.param_index >= pairing.num_params) {
    return InvalidArgument("param_index is " + std::to_string(pairing.param_index) +
                           ", not below num_params, which is " + std::to_string(pairing.num_params));
  }
  return FindCollective(request.operation.kind)
      .Check({request.operation, request.shape, request.splits, ranks});
}

Status Engine::CheckStatsUsable(EngineStats* stats) const {
  if (InForkedChild()) {
    return FailedPrecondition("this is a forked child of rank " + std::to_string(config_.rank) +
                              ", which has no figures; ask in the process that called init()");
  }
  stats->rank = config_.rank;
  stats->size = config_.size;
  return CheckUsable();
}

void Engine::LogStart(const std::string& more) const {
  const Logger logger(static_cast<LogLevel>(config_.log_level), config_.rank);
  logger.Log(LogLevel::kInfo, std::string("tf_smddp ") + kVersion + ": rank " + std::to_string(config_.rank) +
                                  " of " + std::to_string(config_.size) + " on " + HostName() + ", pid " +
                                  std::to_string(::getpid()) + more + ", reductions on " + ReduceTarget());
}

Status Engine::StartTimeline(const std::string& path) {
  Status status = CheckUsable();
  return status.ok() ? timeline_->Start(path, config_.rank) : status;
}

Status Engine::StopTimeline() {
  if (InForkedChild()) return CheckUsable();
  return timeline_->Stop();
}

void Engine::CloseTimeline() {
  const Status written = timeline_->Stop();
  if (!written.ok()) {
    Logger(static_cast<LogLevel>(config_.log_level), config_.rank).Log(LogLevel::kWarning, written.message());
  }
}

}  // namespace tf_smddp

#include "kernels/tf/global_engine.h"

#include <mutex>
#include <utility>

#include "kernels/common/config.h"
#include "kernels/common/logging.h"
#include "kernels/memory/arena.h"
#include "kernels/mpi/mpi_wire.h"
#include "kernels/tf/arena_allocator.h"

namespace tf_smddp {
namespace {

struct Holder {
  std::mutex mu;
  std::shared_ptr<Engine> engine;  // guarded by mu

  // Used by init() and shutdown(), which Python calls one at a time.
  const std::shared_ptr<MappingCache> mappings = std::make_shared<MappingCache>();
  std::shared_ptr<Arena> arena;  // of the last engine: there are tensors in it
};

// Never destroyed: TensorFlow's threads may call late.
Holder& GlobalHolder() {
  static Holder* holder = new Holder;
  return *holder;
}

// Tensors come from the arena from now on, where that is possible.
void StartUsingArena(const std::shared_ptr<Engine>& engine) {
  Holder& holder = GlobalHolder();
  const Config& config = engine->config();
  const Logger logger(static_cast<LogLevel>(config.log_level), config.rank);
  const LogLevel level = config.rank == 0 ? LogLevel::kWarning : LogLevel::kInfo;  // one line for the job
  holder.arena = engine->arena();
  if (holder.arena == nullptr) return;
  holder.arena->Open();
  switch (CanUseArena()) {
    case ArenaUse::kPossible:
      UseArena(holder.arena, static_cast<std::size_t>(config.small_bytes));
      return;
    case ArenaUse::kTooLate:
      logger.Log(level,
                 "tensors were made before tf_smddp was imported, so tensors lie outside of the memory that "
                 "the ranks share, and are copied through it; import tf_smddp before the first tensor, "
                 "variable or dataset");
      return;
    case ArenaUse::kBypassed:
      logger.Log(level,
                 "TensorFlow's own pool is in use for CPU memory (TF_CPU_ALLOCATOR_USE_BFC), so tensors are "
                 "copied through the memory that the ranks share");
      return;
  }
}

// Tensors that are in the arena stay valid.
void StopUsingArena() {
  UseArena(nullptr, 0);
  std::shared_ptr<Arena>& arena = GlobalHolder().arena;
  if (arena == nullptr) return;
  // Other ranks of a job that failed may still write to its arena, so no other job uses that.
  const bool for_good = arena->quarantined();
  arena->Close(for_good);
  if (for_good) arena = nullptr;
}

}  // namespace

Status StartGlobalEngine(const std::string& nccl_library, const std::string& prefix) {
  if (GlobalEngine() != nullptr) return FailedPrecondition("the engine is running already");
  Config config;
  Status status = ReadConfig(&config);
  if (!status.ok()) return status;
  if (config.nccl_library.empty()) config.nccl_library = nccl_library;
  std::unique_ptr<Wire> wire;
  if (config.local_size < config.size) status = mpi::MpiWire::Open(prefix, &config, &wire);
  if (!status.ok()) return status;
  std::unique_ptr<Engine> engine;
  Holder& holder = GlobalHolder();
  status = Engine::Start(config, holder.mappings, &engine, holder.arena, std::move(wire));
  if (!status.ok()) return status;
  const std::shared_ptr<Engine> started = std::move(engine);
  StartUsingArena(started);
  std::lock_guard<std::mutex> lock(holder.mu);
  holder.engine = started;
  return {};
}

Status StopGlobalEngine() {
  const std::shared_ptr<Engine> engine = GlobalEngine();
  if (engine == nullptr || engine->InForkedChild()) return {};
  // It can still be found while it shuts down: requests that are submitted meanwhile get its error.
  const Status status = engine->Shutdown();
  StopUsingArena();
  Holder& holder = GlobalHolder();
  std::lock_guard<std::mutex> lock(holder.mu);
  holder.engine = nullptr;
  return status;
}

std::shared_ptr<Engine> GlobalEngine() {
  Holder& holder = GlobalHolder();
  std::lock_guard<std::mutex> lock(holder.mu);
  return holder.engine;
}

Status NotInitialized() {
  return FailedPrecondition(
      "tf_smddp is not initialized: call tf_smddp.init() before any collective, and none after "
      "shutdown()");
}

}  // namespace tf_smddp

#include "kernels/process/global_engine.h"

#include <cstddef>
#include <mutex>
#include <utility>

#include "kernels/common/config.h"
#include "kernels/memory/arena.h"
#include "kernels/mpi/mpi_wire.h"
#include "kernels/process/arenas.h"
#include "kernels/process/backends.h"

namespace tf_smddp {
namespace {

struct Holder {
  std::mutex mu;
  std::shared_ptr<Engine> engine;  // guarded by mu

  // Used by init() and shutdown(), which Python calls one at a time.
  const std::shared_ptr<MappingCache> mappings = std::make_shared<MappingCache>();
  std::shared_ptr<Arena> arena;  // of the last engine: there are tensors in it
};

// Never destroyed: a framework's threads may call late.
Holder& GlobalHolder() {
  static Holder* holder = new Holder;
  return *holder;
}

// Tensors come from the arena from now on.
void StartUsingArena(Engine& engine) {
  std::shared_ptr<Arena>& arena = GlobalHolder().arena;
  arena = engine.arena();
  if (arena == nullptr) return;
  arena->Open();
  TheArenas().Use(arena, static_cast<std::size_t>(engine.config().small_bytes));
}

// Tensors that are in the arena stay valid.
void StopUsingArena() {
  TheArenas().Use(nullptr, 0);
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
  status = Engine::Start(config, holder.mappings, AllBackends(), &engine, holder.arena, std::move(wire));
  if (!status.ok()) return status;
  const std::shared_ptr<Engine> started = std::move(engine);
  StartUsingArena(*started);
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
      "tf_smddp is not initialized: call init() before any collective, and none after shutdown()");
}

}  // namespace tf_smddp

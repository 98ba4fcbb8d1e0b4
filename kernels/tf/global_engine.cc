#include "kernels/tf/global_engine.h"

#include <mutex>
#include <utility>

#include "kernels/common/config.h"

namespace tf_smddp {
namespace {

struct Holder {
  std::mutex mu;
  std::shared_ptr<Engine> engine;  // guarded by mu
};

// Never destroyed: TensorFlow's threads may call late.
Holder& GlobalHolder() {
  static Holder* holder = new Holder;
  return *holder;
}

}  // namespace

Status StartGlobalEngine() {
  if (GlobalEngine() != nullptr) return FailedPrecondition("the engine is running already");
  Config config;
  Status status = ReadConfig(&config);
  if (!status.ok()) return status;
  std::unique_ptr<Engine> engine;
  status = Engine::Start(config, std::make_shared<MappingCache>(), &engine);
  if (!status.ok()) return status;
  Holder& holder = GlobalHolder();
  std::lock_guard<std::mutex> lock(holder.mu);
  holder.engine = std::move(engine);
  return {};
}

Status StopGlobalEngine() {
  const std::shared_ptr<Engine> engine = GlobalEngine();
  if (engine == nullptr || engine->InForkedChild()) return {};
  // Still to be found while it shuts down: what is submitted meanwhile is told so.
  const Status status = engine->Shutdown();
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

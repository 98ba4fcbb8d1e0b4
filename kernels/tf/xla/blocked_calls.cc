#include "kernels/tf/xla/blocked_calls.h"

#include <cstdint>
#include <mutex>
#include <set>
#include <string>
#include <vector>

namespace tf_smddp {
namespace {

struct Registry {
  std::mutex mu;
  // All below are guarded by mu.
  std::set<const BlockedCall*> calls;
  std::uint64_t changes = 0;  // how often `calls` has changed
  ThreadPools pools;
  int graph_steps = 0;
};

Registry& TheRegistry() {
  static auto* const registry = new Registry;  // never destroyed: calls may run until the process ends
  return *registry;
}

std::string Remedy(const std::string& pool, const std::string& variable, int threads) {
  return "TensorFlow's " + pool + "-op pool has " + std::to_string(threads) +
         (threads == 1 ? " thread" : " threads") + ". Give it at least " + std::to_string(threads + 1) +
         "; one for each Python thread that calls such functions, with a process set of its own, is always "
         "enough: tf.config.threading.set_" +
         pool + "_op_parallelism_threads(n) at the start of the program, or " + variable;
}

}  // namespace

BlockedCall::BlockedCall(Engine* engine, CommunicatorId communicator)
    : engine_(engine), communicator_(communicator) {
  Registry& registry = TheRegistry();
  std::lock_guard<std::mutex> lock(registry.mu);
  on_intra_op_thread_ = registry.pools.on_intra_op_thread != nullptr && registry.pools.on_intra_op_thread();
  registry.calls.insert(this);
  ++registry.changes;
}

BlockedCall::~BlockedCall() {
  Registry& registry = TheRegistry();
  std::lock_guard<std::mutex> lock(registry.mu);
  registry.calls.erase(this);
  ++registry.changes;
  engine_->ReportStarved(0, {}, "");  // another call that still finds no thread says so when it looks
}

void BlockedCall::Look() {
  Registry& registry = TheRegistry();
  // Held until the engine knows, so that its last report is the latest.
  std::lock_guard<std::mutex> lock(registry.mu);
  std::vector<CommunicatorId> all, on_intra_op_threads;
  for (const BlockedCall* call : registry.calls) {
    if (call->engine_ != engine_) continue;
    all.push_back(call->communicator_);
    if (call->on_intra_op_thread_) on_intra_op_threads.push_back(call->communicator_);
  }
  const int inter_op = registry.pools.inter_op, intra_op = registry.pools.intra_op;
  if (intra_op > 0 && static_cast<int>(on_intra_op_threads.size()) >= intra_op) {
    engine_->ReportStarved(registry.changes, on_intra_op_threads,
                           Remedy("intra", "TF_NUM_INTRAOP_THREADS", intra_op));
  } else if (inter_op > 0 && registry.graph_steps > inter_op && static_cast<int>(all.size()) >= inter_op) {
    engine_->ReportStarved(registry.changes, all, Remedy("inter", "TF_NUM_INTEROP_THREADS", inter_op));
  } else {
    engine_->ReportStarved(0, {}, "");
  }
}

void BlockedCall::SetPools(ThreadPools pools) {
  Registry& registry = TheRegistry();
  std::lock_guard<std::mutex> lock(registry.mu);
  registry.pools = pools;
}

void BlockedCall::SetGraphSteps(int steps) {
  Registry& registry = TheRegistry();
  std::lock_guard<std::mutex> lock(registry.mu);
  registry.graph_steps = steps;
}

}  // namespace tf_smddp

#include "kernels/tf/eager_ops.h"

#include <mutex>
#include <unordered_map>

namespace tf_smddp {
namespace {

struct Counts {
  std::mutex mu;
  std::unordered_map<CommunicatorId, std::uint64_t> ops;  // guarded by mu
};

// Never destroyed: TensorFlow's threads may call late.
Counts& TheCounts() {
  static Counts* counts = new Counts;
  return *counts;
}

}  // namespace

void CountEagerOp(CommunicatorId communicator) {
  std::lock_guard<std::mutex> lock(TheCounts().mu);
  ++TheCounts().ops[communicator];
}

std::uint64_t EagerOps(CommunicatorId communicator) {
  std::lock_guard<std::mutex> lock(TheCounts().mu);
  return TheCounts().ops[communicator];
}

}  // namespace tf_smddp

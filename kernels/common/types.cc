#include "kernels/common/types.h"

#include <cstring>

namespace tf_smddp {
namespace {

// Indexed by ReduceOp.
constexpr const char* kReduceOps[kNumReduceOps] = {"sum", "average", "min", "max", "product"};

}  // namespace

const char* ReduceOpName(ReduceOp op) { return kReduceOps[static_cast<int>(op)]; }

bool ParseReduceOp(const char* name, ReduceOp* op) {
  for (int i = 0; i < kNumReduceOps; ++i) {
    if (std::strcmp(name, kReduceOps[i]) == 0) {
      *op = static_cast<ReduceOp>(i);
      return true;
    }
  }
  return false;
}

}  // namespace tf_smddp

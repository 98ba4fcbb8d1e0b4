#include "tests/pretend_gpu/nccl/operation.h"

#include "tests/pretend_gpu/nccl/types.h"

namespace pretend_gpu::nccl {
namespace {

const char* NameOf(Kind kind) {
  constexpr const char* kNames[] = {"ncclAllReduce",     "ncclReduce", "ncclBroadcast", "ncclAllGather",
                                    "ncclReduceScatter", "ncclSend",   "ncclRecv",      "ncclCommSplit"};
  return kNames[static_cast<int>(kind)];
}

const char* NameOfOp(std::int32_t op) {
  constexpr const char* kNames[] = {"ncclSum", "ncclProd", "ncclMax",
                                    "ncclMin", "ncclAvg",  "an op of ncclRedOpCreatePreMulSum"};
  return kNames[op];
}

}  // namespace

std::string Describe(const Operation& operation) {
  std::string text = NameOf(operation.kind);
  if (operation.kind == Kind::kSplit) return text;
  text += "(" + std::to_string(operation.count) + " of " + NameOfType(operation.type);
  if (Reduces(operation.kind)) text += std::string(", ") + NameOfOp(operation.op);
  const std::string peer = std::to_string(operation.peer);
  if (operation.kind == Kind::kReduce || operation.kind == Kind::kBroadcast) text += ", root " + peer;
  if (operation.kind == Kind::kSend) text += ", to rank " + peer;
  if (operation.kind == Kind::kReceive) text += ", from rank " + peer;
  return text + ")";
}

bool Agree(const Operation& a, const Operation& b) {
  if (IsBetweenTwo(a.kind)) return a.type == b.type && a.count == b.count;
  if (a.kind != b.kind) return false;
  return a.kind == Kind::kSplit ||
         (a.type == b.type && a.op == b.op && a.peer == b.peer && a.count == b.count);
}

}  // namespace pretend_gpu::nccl

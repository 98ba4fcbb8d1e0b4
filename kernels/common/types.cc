#include "kernels/common/types.h"

#include <cstring>

namespace tf_smddp {
namespace {

struct DTypeInfo {
  const char* name;
  std::size_t bytes;
};

// Indexed by DType.
constexpr DTypeInfo kDTypes[kNumDTypes] = {
    {"float16", 2}, {"bfloat16", 2}, {"float32", 4}, {"float64", 8},   {"int32", 4},
    {"int64", 8},   {"uint8", 1},    {"bool", 1},    {"int8", 1},      {"int16", 2},
    {"uint16", 2},  {"uint32", 4},   {"uint64", 8},  {"complex64", 8}, {"complex128", 16},
};

// Indexed by ReduceOp.
constexpr const char* kReduceOps[kNumReduceOps] = {"sum", "average", "min", "max", "product"};

// Indexed by CollectiveKind.
constexpr const char* kCollectives[kNumCollectiveKinds] = {
    "allreduce", "broadcast", "barrier", "allgather", "reducescatter", "alltoall", "process set"};

}  // namespace

const char* CollectiveKindName(CollectiveKind kind) { return kCollectives[static_cast<int>(kind)]; }

std::size_t DTypeBytes(DType dtype) { return kDTypes[static_cast<int>(dtype)].bytes; }

const char* DTypeName(DType dtype) { return kDTypes[static_cast<int>(dtype)].name; }

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

bool IsInexact(DType dtype) {
  switch (dtype) {
    case DType::kFloat16:
    case DType::kBFloat16:
    case DType::kFloat32:
    case DType::kFloat64:
    case DType::kComplex64:
    case DType::kComplex128:
      return true;
    default:
      return false;
  }
}

bool ReduceOpDefined(DType dtype, ReduceOp op) {
  const bool extremum = op == ReduceOp::kMin || op == ReduceOp::kMax;
  if (dtype == DType::kBool) return extremum;
  if (dtype == DType::kComplex64 || dtype == DType::kComplex128) return !extremum;
  return true;
}

}  // namespace tf_smddp

// The description of a call, for the other ranks and for sentences.
#ifndef TF_SMDDP_TESTS_PRETEND_GPU_NCCL_OPERATION_H_
#define TF_SMDDP_TESTS_PRETEND_GPU_NCCL_OPERATION_H_

#include <cstdint>
#include <string>

namespace pretend_gpu::nccl {

enum class Kind : std::int32_t {
  kAllReduce,
  kReduce,
  kBroadcast,
  kAllGather,
  kReduceScatter,
  kSend,
  kReceive,
  kSplit,
};

// The op of reductions that ncclRedOpCreatePreMulSum made: each rank has a handle and a scalar of its own.
inline constexpr std::int32_t kPreMulSum = 5;

// It lies in shared memory.
struct Operation {
  Kind kind;
  std::int32_t type;
  std::int32_t op;    // of reductions, else 0
  std::int32_t peer;  // the root, or the other rank, else 0
  std::uint64_t count;
};

inline bool IsBetweenTwo(Kind kind) { return kind == Kind::kSend || kind == Kind::kReceive; }

inline bool Reduces(Kind kind) {
  return kind == Kind::kAllReduce || kind == Kind::kReduce || kind == Kind::kReduceScatter;
}

// Returns "ncclReduce(100 of ncclFloat32, ncclSum, root 1)".
std::string Describe(const Operation& operation);

// Returns whether two ranks that meet in these calls agree: a collective is the same on all ranks, and a send
// has the count and the type of its receive.
bool Agree(const Operation& a, const Operation& b);

}  // namespace pretend_gpu::nccl

#endif  // TF_SMDDP_TESTS_PRETEND_GPU_NCCL_OPERATION_H_

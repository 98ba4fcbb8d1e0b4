// The collectives, element types and reduce operations that requests carry.
//
// Place in the stack: the bottom; includes nothing of the project. Not here: what the operations do
// to memory (kernels/reduce) and how TensorFlow names its types (kernels/tf).
#ifndef TF_SMDDP_KERNELS_COMMON_TYPES_H_
#define TF_SMDDP_KERNELS_COMMON_TYPES_H_

#include <cstddef>
#include <cstdint>

namespace tf_smddp {

// Values are part of the shared-memory manifest: append, never renumber.
enum class DType : std::uint8_t {
  kFloat16 = 0,
  kBFloat16 = 1,
  kFloat32 = 2,
  kFloat64 = 3,
  kInt32 = 4,
  kInt64 = 5,
  kUInt8 = 6,
  kBool = 7,
};
inline constexpr int kNumDTypes = 8;

enum class ReduceOp : std::uint8_t {
  kSum = 0,
  kAverage = 1,
  kMin = 2,
  kMax = 3,
  kProduct = 4,
};
inline constexpr int kNumReduceOps = 5;

// What a request does. Values are part of the manifest, too.
enum class CollectiveKind : std::uint8_t {
  kAllreduce = 0,
  kBroadcast = 1,
  kBarrier = 2,
};
inline constexpr int kNumCollectiveKinds = 3;

// Lower-case name ("allreduce").
const char* CollectiveKindName(CollectiveKind kind);

// Bytes of one element.
std::size_t DTypeBytes(DType dtype);

// NumPy's name ("float32", "bfloat16", "bool").
const char* DTypeName(DType dtype);

// Lower-case name as in the op's attribute ("sum", "average", "min", "max", "product").
const char* ReduceOpName(ReduceOp op);

// Sets *op from its lower-case name; false (and *op untouched) when there is none of that name.
bool ParseReduceOp(const char* name, ReduceOp* op);

// Whether `op` is defined for `dtype`: everything, but that bool has only kMin (logical and) and
// kMax (logical or).
bool ReduceOpDefined(DType dtype, ReduceOp op);

}  // namespace tf_smddp

#endif  // TF_SMDDP_KERNELS_COMMON_TYPES_H_

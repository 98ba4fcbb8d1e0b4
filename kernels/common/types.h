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
  kInt8 = 8,
  kInt16 = 9,
  kUInt16 = 10,
  kUInt32 = 11,
  kUInt64 = 12,
  kComplex64 = 13,   // two float32
  kComplex128 = 14,  // two float64
};
inline constexpr int kNumDTypes = 15;

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
  kAllgather = 3,
  kReducescatter = 4,
  kAlltoall = 5,
  kCommunicator = 6,  // the ranks agree on a group of them; moves no data
};
inline constexpr int kNumCollectiveKinds = 7;

// Whether the elements of several ranks are combined, so that op and factors count.
constexpr bool IsReduction(CollectiveKind kind) {
  return kind == CollectiveKind::kAllreduce || kind == CollectiveKind::kReducescatter;
}

// Whether ranks may bring tensors that differ in their first dimension.
constexpr bool RowsMayDiffer(CollectiveKind kind) {
  return kind == CollectiveKind::kAllgather || kind == CollectiveKind::kAlltoall;
}

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

// float16, bfloat16, float32, float64 and the complex types.
bool IsInexact(DType dtype);

// Whether `op` is defined for `dtype`: everything, but that bool has only kMin (logical and) and
// kMax (logical or), and that complex numbers, which have no order, have neither.
bool ReduceOpDefined(DType dtype, ReduceOp op);

}  // namespace tf_smddp

#endif  // TF_SMDDP_KERNELS_COMMON_TYPES_H_

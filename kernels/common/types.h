// The element types and the reduce operations that requests carry.
//
// Place in the stack: the bottom. Not here: what the operations do to memory (kernels/reduce) and the
// collectives (collective_info.h). The list of the types is dtype_table.h.
#ifndef TF_SMDDP_KERNELS_COMMON_TYPES_H_
#define TF_SMDDP_KERNELS_COMMON_TYPES_H_

#include <cstddef>
#include <cstdint>

#include "kernels/common/dtype_table.h"

namespace tf_smddp {

// kFloat16, kBFloat16, …: see dtype_table.h. A value may come from another process's memory, and is then
// checked against kNumDTypes before its properties are asked for.
enum class DType : std::uint8_t {
#define TF_SMDDP_ENUMERATOR(enumerator, ...) k##enumerator,
  TF_SMDDP_DTYPES(TF_SMDDP_ENUMERATOR, )
#undef TF_SMDDP_ENUMERATOR
};

// The operations that a type's elements have.
enum class Arithmetic : std::uint8_t {
  kFloat,    // every operation; results are rounded; factors apply
  kInteger,  // every operation, exact
  kLogical,  // kMin, which is the logical and, and kMax, which is the logical or
  kComplex,  // as kFloat, but without kMin and kMax: complex numbers have no order
};

struct DTypeInfo {
  const char* name;   // NumPy's: "float32", "bfloat16", "bool"
  std::size_t bytes;  // of one element
  Arithmetic arithmetic;
};

// Indexed by DType.
inline constexpr DTypeInfo kDTypes[] = {
#define TF_SMDDP_INFO(enumerator, name, tensorflow, data_type, bytes, arithmetic, kernels) \
  {#name, bytes, Arithmetic::k##arithmetic},
    TF_SMDDP_DTYPES(TF_SMDDP_INFO, )
#undef TF_SMDDP_INFO
};
inline constexpr int kNumDTypes = sizeof kDTypes / sizeof kDTypes[0];

// Values are part of the manifest, too: append, and never renumber.
enum class ReduceOp : std::uint8_t {
  kSum = 0,
  kAverage = 1,
  kMin = 2,
  kMax = 3,
  kProduct = 4,
};
inline constexpr int kNumReduceOps = 5;

constexpr const DTypeInfo& InfoOf(DType dtype) { return kDTypes[static_cast<int>(dtype)]; }
constexpr std::size_t DTypeBytes(DType dtype) { return InfoOf(dtype).bytes; }
constexpr const char* DTypeName(DType dtype) { return InfoOf(dtype).name; }

// Whether results are rounded: floating-point and complex types. Only these have factors.
constexpr bool IsInexact(DType dtype) {
  return InfoOf(dtype).arithmetic == Arithmetic::kFloat || InfoOf(dtype).arithmetic == Arithmetic::kComplex;
}

// Whether `op` is defined for the type; see Arithmetic.
constexpr bool ReduceOpDefined(DType dtype, ReduceOp op) {
  const bool extremum = op == ReduceOp::kMin || op == ReduceOp::kMax;
  switch (InfoOf(dtype).arithmetic) {
    case Arithmetic::kFloat:
    case Arithmetic::kInteger:
      return true;
    case Arithmetic::kLogical:
      return extremum;
    case Arithmetic::kComplex:
      return !extremum;
  }
  return false;
}

// The lower-case name as in an op's attribute: "sum", "average", "min", "max", "product".
const char* ReduceOpName(ReduceOp op);

// Sets *op from its lower-case name. Returns false, and leaves *op alone, when there is none of that name.
bool ParseReduceOp(const char* name, ReduceOp* op);

}  // namespace tf_smddp

#endif  // TF_SMDDP_KERNELS_COMMON_TYPES_H_

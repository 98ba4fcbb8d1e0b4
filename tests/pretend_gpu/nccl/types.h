// The data types: sizes, names, and what C++ has for them.
#ifndef TF_SMDDP_TESTS_PRETEND_GPU_NCCL_TYPES_H_
#define TF_SMDDP_TESTS_PRETEND_GPU_NCCL_TYPES_H_

#include <cstddef>
#include <cstdint>

#include "tests/pretend_gpu/nccl/api/nccl.h"
#include "tests/pretend_gpu/nccl/floats.h"

namespace pretend_gpu::nccl {

// Calls `visit` with a value of the C++ type. The type must be one of NCCL's.
template <class Visit>
auto WithType(int type, Visit&& visit) {
  switch (type) {
    case ncclInt8:
      return visit(std::int8_t{});
    case ncclUint8:
      return visit(std::uint8_t{});
    case ncclInt32:
      return visit(std::int32_t{});
    case ncclUint32:
      return visit(std::uint32_t{});
    case ncclInt64:
      return visit(std::int64_t{});
    case ncclUint64:
      return visit(std::uint64_t{});
    case ncclFloat16:
      return visit(Half{});
    case ncclFloat32:
      return visit(float{});
    case ncclFloat64:
      return visit(double{});
    default:
      return visit(Bfloat16{});
  }
}

inline bool IsType(int type) { return type >= 0 && type < ncclNumTypes; }

inline bool IsInteger(int type) { return type <= ncclUint64; }

inline std::size_t SizeOf(int type) {
  return WithType(type, [](auto value) { return sizeof(value); });
}

inline const char* NameOfType(int type) {
  constexpr const char* kNames[] = {"ncclInt8",    "ncclUint8",   "ncclInt32",   "ncclUint32",
                                    "ncclInt64",   "ncclUint64",  "ncclFloat16", "ncclFloat32",
                                    "ncclFloat64", "ncclBfloat16"};
  return IsType(type) ? kNames[type] : "no type";
}

}  // namespace pretend_gpu::nccl

#endif  // TF_SMDDP_TESTS_PRETEND_GPU_NCCL_TYPES_H_

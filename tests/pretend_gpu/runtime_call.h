// The shared part of the functions of the runtime API.
#ifndef TF_SMDDP_TESTS_PRETEND_GPU_RUNTIME_CALL_H_
#define TF_SMDDP_TESTS_PRETEND_GPU_RUNTIME_CALL_H_

#include "tests/pretend_gpu/api/runtime.h"
#include "tests/pretend_gpu/context.h"
#include "tests/pretend_gpu/diagnostics.h"

namespace pretend_gpu {

// Keeps an error for this thread's cudaGetLastError; returns it.
cudaError_t Keep(cudaError_t error);

// Initializes, and makes device 0 current if this thread has none, as the runtime API does by itself.
cudaError_t EnsureContext();

inline CUdeviceptr Pointer(const void* address) { return reinterpret_cast<CUdeviceptr>(address); }

}  // namespace pretend_gpu

// Names the call in sentences, and sees to it that there is a context.
#define PRETEND_GPU_RUNTIME_ENTER           \
  const ::pretend_gpu::Call call(__func__); \
  if (const cudaError_t error = ::pretend_gpu::EnsureContext()) return ::pretend_gpu::Keep(error)

#endif  // TF_SMDDP_TESTS_PRETEND_GPU_RUNTIME_CALL_H_

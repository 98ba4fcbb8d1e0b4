// The beginning of each function of the driver API.
#ifndef TF_SMDDP_TESTS_PRETEND_GPU_DRIVER_CALL_H_
#define TF_SMDDP_TESTS_PRETEND_GPU_DRIVER_CALL_H_

#include <string>

#include "tests/pretend_gpu/api/driver.h"
#include "tests/pretend_gpu/diagnostics.h"

namespace pretend_gpu {

// Returns whether cuInit was called, by the program or by the runtime API. Any thread.
bool Initialized();

// Creates a stream for a program; `role` is that of its maker. Ends the process if no context is current.
CUstream MakeStream(unsigned flags, int priority, const std::string& role);

// Returns the role of streams that the code at this address makes: the name of its library or program.
std::string RoleOfCaller(const void* code);

}  // namespace pretend_gpu

// Names the call in sentences, and returns the error that CUDA has before cuInit.
#define PRETEND_GPU_ENTER                   \
  const ::pretend_gpu::Call call(__func__); \
  if (!::pretend_gpu::Initialized()) return CUDA_ERROR_NOT_INITIALIZED

#endif  // TF_SMDDP_TESTS_PRETEND_GPU_DRIVER_CALL_H_

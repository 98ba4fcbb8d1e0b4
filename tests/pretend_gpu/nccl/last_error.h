// The text of ncclGetLastError.
#ifndef TF_SMDDP_TESTS_PRETEND_GPU_NCCL_LAST_ERROR_H_
#define TF_SMDDP_TESTS_PRETEND_GPU_NCCL_LAST_ERROR_H_

#include <string>

#include "tests/pretend_gpu/nccl/api/nccl.h"

namespace pretend_gpu::nccl {

// Keeps the text of an error, and returns the error. Any thread.
ncclResult_t Refuse(ncclResult_t error, const std::string& text);

// Returns the text of the last error of this process, or "". It stays for good.
const char* LastError();

}  // namespace pretend_gpu::nccl

#endif  // TF_SMDDP_TESTS_PRETEND_GPU_NCCL_LAST_ERROR_H_

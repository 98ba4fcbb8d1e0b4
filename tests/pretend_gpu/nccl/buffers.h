// Checks of the buffers that a program gives to a call.
#ifndef TF_SMDDP_TESTS_PRETEND_GPU_NCCL_BUFFERS_H_
#define TF_SMDDP_TESTS_PRETEND_GPU_NCCL_BUFFERS_H_

#include <string>

#include "tests/pretend_gpu/nccl/communicator.h"
#include "tests/pretend_gpu/nccl/transfer.h"

namespace pretend_gpu::nccl {

// Fills in where streams find the buffers, which are in use from now on. Ends the process if they are no
// memory of the communicator's device, or if they overlap but are not in place.
void ResolveBuffers(const Communicator& communicator, const void* send, void* receive,
                    const std::string& user, Part* part);

// As UseMemory, and ends the process if the memory is of another device.
Memory UseOwnMemory(const Communicator& communicator, const void* address, std::size_t bytes,
                    const char* what, const std::string& user);

}  // namespace pretend_gpu::nccl

#endif  // TF_SMDDP_TESTS_PRETEND_GPU_NCCL_BUFFERS_H_

// The calls of one communicator that one kernel does: those of a group, or a single one.
#ifndef TF_SMDDP_TESTS_PRETEND_GPU_NCCL_LAUNCH_H_
#define TF_SMDDP_TESTS_PRETEND_GPU_NCCL_LAUNCH_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "tests/pretend_gpu/nccl/communicator.h"
#include "tests/pretend_gpu/nccl/transfer.h"

namespace pretend_gpu::nccl {

// Returns the number of a new launch of this process, counted from 1.
std::uint64_t NextIssue();

// Posts the calls and enqueues their kernel; `streams` has the stream of each call. The kernel begins when
// all of the streams have come to it, and they go on when it ends. Then
//   1. it puts what each call sends into the outbox, and poisons what each receives,
//   2. arrives, and waits for the other ranks,
//   3. takes what they have sent. If the communicator is aborted before, what it receives stays poison; with
//      PRETEND_GPU_NCCL_SPOIL, so it does if another rank's has ended before.
// Nothing is enqueued if there is no memory for the first call between two; that error stays with the
// communicator.
ncclResult_t EnqueueLaunch(const std::shared_ptr<Communicator>& communicator, std::vector<Part> parts,
                           std::vector<CUstream> streams);

}  // namespace pretend_gpu::nccl

#endif  // TF_SMDDP_TESTS_PRETEND_GPU_NCCL_LAUNCH_H_

// Which devices may touch which others' memory in kernels. Copies between devices need no permission.
#ifndef TF_SMDDP_TESTS_PRETEND_GPU_PEER_ACCESS_H_
#define TF_SMDDP_TESTS_PRETEND_GPU_PEER_ACCESS_H_

namespace pretend_gpu {

// Returns whether kernels of `device` may touch the memory of `peer`. Any thread.
bool CanAccess(int device, int peer);

// Allows or forbids it; returns false if it was so before. Any thread.
bool SetAccess(int device, int peer, bool allowed);

}  // namespace pretend_gpu

#endif  // TF_SMDDP_TESTS_PRETEND_GPU_PEER_ACCESS_H_

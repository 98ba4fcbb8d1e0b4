// The view of another process of the same machine and user, through /proc.
#ifndef TF_SMDDP_TESTS_PRETEND_GPU_OTHER_PROCESS_H_
#define TF_SMDDP_TESTS_PRETEND_GPU_OTHER_PROCESS_H_

#include <cstdint>

#include "tests/pretend_gpu/visibility.h"

namespace pretend_gpu {

// All functions: any thread.

// Returns whether the process runs; one that has ended and that nobody has waited for does not.
PRETEND_GPU_SHARED bool IsAlive(std::int32_t process);

// Returns the inode of a file of this process.
PRETEND_GPU_SHARED std::uint64_t InodeOf(int fd);

}  // namespace pretend_gpu

#endif  // TF_SMDDP_TESTS_PRETEND_GPU_OTHER_PROCESS_H_

// How the ranks of a communicator find each other: by the place of its board.
#ifndef TF_SMDDP_TESTS_PRETEND_GPU_NCCL_UNIQUE_ID_H_
#define TF_SMDDP_TESTS_PRETEND_GPU_NCCL_UNIQUE_ID_H_

#include <memory>

#include "tests/pretend_gpu/nccl/api/nccl.h"
#include "tests/pretend_gpu/nccl/board.h"

namespace pretend_gpu::nccl {

// Both: any thread.

ncclUniqueId IdOf(const Board& board);

// Returns nullptr if the process that made the board has ended. Ends this process if these bytes are no id.
std::shared_ptr<Board> BoardOf(const ncclUniqueId& id);

}  // namespace pretend_gpu::nccl

#endif  // TF_SMDDP_TESTS_PRETEND_GPU_NCCL_UNIQUE_ID_H_

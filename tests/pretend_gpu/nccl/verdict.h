// A mistake that one rank finds ends the others, too, with its sentence.
#ifndef TF_SMDDP_TESTS_PRETEND_GPU_NCCL_VERDICT_H_
#define TF_SMDDP_TESTS_PRETEND_GPU_NCCL_VERDICT_H_

#include <mutex>
#include <string>

#include "tests/pretend_gpu/nccl/board.h"

namespace pretend_gpu::nccl {

// Both: any thread, with the lock of the board.

// Ends this process with the sentence, and the others of the communicator when they look.
[[noreturn]] void EndAll(std::unique_lock<Board>* lock, const std::string& sentence);

// Ends this process if another rank has called EndAll.
void ObeyVerdict(std::unique_lock<Board>* lock);

}  // namespace pretend_gpu::nccl

#endif  // TF_SMDDP_TESTS_PRETEND_GPU_NCCL_VERDICT_H_

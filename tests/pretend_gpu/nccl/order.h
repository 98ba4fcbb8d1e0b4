// Finds calls that wait for each other in a circle.
//
// A device starts the kernels of its communicators in the order in which the program enqueues them, and a
// kernel that waits for its peers may leave no room for the next one.
// The calls of a group are one launch for each communicator. So all devices must have one order of
// all calls of all communicators that they share. The calls are the nodes of a graph: calls that meet are one
// node, and on each device a launch precedes the next one. A circle is a deadlock, or on a GPU with more room
// only the danger of one. With PRETEND_GPU_NCCL_CONCURRENT=1 a launch precedes the next one of the same
// stream only: then a circle is a deadlock.
//
// A process sees the boards of its own communicators, with the last calls on each. A circle through boards
// that no single process sees is left to the time limit of waits.
#ifndef TF_SMDDP_TESTS_PRETEND_GPU_NCCL_ORDER_H_
#define TF_SMDDP_TESTS_PRETEND_GPU_NCCL_ORDER_H_

#include "tests/pretend_gpu/nccl/communicator.h"

namespace pretend_gpu::nccl {

// Called after a call of the communicator was posted. Ends the process if it closes a circle. Any thread,
// without the locks of boards.
void CheckOrder(Communicator& communicator);

}  // namespace pretend_gpu::nccl

#endif  // TF_SMDDP_TESTS_PRETEND_GPU_NCCL_ORDER_H_

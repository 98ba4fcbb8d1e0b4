// SlurmTasksOnNode: Slurm's notation for the number of tasks on each node of a step.
//
// Place in the stack: the bottom, pure. launch_environment.cc calls it.
#ifndef TF_SMDDP_KERNELS_COMMON_SLURM_TASKS_H_
#define TF_SMDDP_KERNELS_COMMON_SLURM_TASKS_H_

#include <string>

#include "kernels/common/status.h"

namespace tf_smddp {

// Sets *tasks to the number of tasks on node `node`, counted from 0. "2(x3),1" stands for 2, 2, 2, 1. Errors:
// InvalidArgument when `text` is not of that form or has no such node.
Status SlurmTasksOnNode(const std::string& text, int node, int* tasks);

}  // namespace tf_smddp

#endif  // TF_SMDDP_KERNELS_COMMON_SLURM_TASKS_H_

// ProcessManagerAddress: where rank 0 starts a process manager for MPI, when the launcher brings none.
//
// Place in the stack: the bottom, pure. launch_environment.cc calls it. Not here: the process manager itself
// (smddp/process_manager.py).
#ifndef TF_SMDDP_KERNELS_COMMON_PROCESS_MANAGER_ADDRESS_H_
#define TF_SMDDP_KERNELS_COMMON_PROCESS_MANAGER_ADDRESS_H_

#include <functional>
#include <string>

#include "kernels/common/status.h"

namespace tf_smddp {

struct ProcessManagerAddress {
  std::string host;  // a name or an address of rank 0's host; empty when no process manager is needed
  int port = 0;      // a TCP port there
};

// Reads it from the variables that `lookup` shows: the host is MASTER_ADDR, and the port the one after
// MASTER_PORT, where the agent of torchrun listens. Without them, a Slurm step has a host of its own, the
// first of SLURM_STEP_NODELIST, and a port of its own, which follows from SLURM_JOB_ID and SLURM_STEP_ID.
// Errors: InvalidArgument, which names the variable.
Status ReadProcessManagerAddress(const std::function<const char*(const char*)>& lookup,
                                 ProcessManagerAddress* address);

// Returns the first host of Slurm's notation: "node01" of "node[01-03,7],other".
std::string FirstSlurmHost(const std::string& nodes);

}  // namespace tf_smddp

#endif  // TF_SMDDP_KERNELS_COMMON_PROCESS_MANAGER_ADDRESS_H_

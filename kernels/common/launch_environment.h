// Launch environment: what the variables of a launcher say about this process. docs/launcher.md has the
// table.
//
// Place in the stack: the bottom. Pure: it reads the variables through a function. config.cc calls it. Not
// here: the place where the ranks meet (control/rendezvous.h).
//
// Each launcher has a family of variables: rank, size, local rank, local size. In this order of precedence:
//
//   1. SMDDP_*, set by smddprun or by hand.
//   2. Open MPI, MPICH's Hydra and Intel MPI, MVAPICH2, torchrun, horovodrun. The first family that says
//      more than one process wins: where `mpirun -np 1` starts a torchrun of four, the four are a job.
//   3. A Slurm step, if none of them is there: Slurm is the outermost when it started another launcher.
//   4. PMI_* without the variables of Hydra, as other PMI servers set them. They do not tell the host, and
//      conda environments export some.
//   5. Otherwise the process is alone.
#ifndef TF_SMDDP_KERNELS_COMMON_LAUNCH_ENVIRONMENT_H_
#define TF_SMDDP_KERNELS_COMMON_LAUNCH_ENVIRONMENT_H_

#include <functional>
#include <string>
#include <vector>

#include "kernels/common/process_manager_address.h"
#include "kernels/common/status.h"

namespace tf_smddp {

// The value of a variable, or nullptr.
using Lookup = std::function<const char*(const char*)>;

// Largest number of ranks on one host.
inline constexpr int kMaxLocalRanks = 64;

// And in a job.
inline constexpr int kMaxRanks = 16'384;

// Which library of MPI a launcher belongs to.
enum class MpiKind { kUnknown, kOpenMpi, kMpich };

// Our launcher's name in Launch::launcher.
inline constexpr char kSmddprun[] = "smddprun";

struct Launch {
  std::string launcher;  // for messages; empty when no launcher is known
  int rank = 0;
  int size = 1;
  int local_rank = 0;
  int local_size = 1;
  MpiKind mpi_kind = MpiKind::kUnknown;  // whose library joins hosts
  bool mpi_kind_is_sure = true;          // and no other one can

  // Set if the ranks are on several hosts, and the launcher brings no process manager for MPI.
  ProcessManagerAddress process_manager;

  // "NAME=value NAME=value": what the launcher calls this run. The same on all ranks of the run.
  std::string run_id;

  // "NAME=value" each, with this rank's values: empty when run_id is enough to tell the run from any other.
  // Otherwise the launcher's process must tell them apart. It is the nearest ancestor that was not started
  // with these variables, since wrappers between it and the rank were.
  std::vector<std::string> rank_variables;

  // A sentence for a person when variables look like a launcher's but could not be used; else empty.
  std::string note;
};

// Errors: InvalidArgument that names the launcher, the variable, its value, and what is missing or allowed.
// An empty value of another launcher's variable counts as not set.
Status ReadLaunch(const Lookup& lookup, Launch* launch);

}  // namespace tf_smddp

#endif  // TF_SMDDP_KERNELS_COMMON_LAUNCH_ENVIRONMENT_H_

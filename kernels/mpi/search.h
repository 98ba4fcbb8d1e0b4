// Search: the files that may be the MPI library of this job, in the order in which to try them.
//
// Place in the stack: below runtime.h. The launcher decides: under a library that is not its own, every
// process would be rank 0 of 1.
#ifndef TF_SMDDP_KERNELS_MPI_SEARCH_H_
#define TF_SMDDP_KERNELS_MPI_SEARCH_H_

#include <string>
#include <vector>

#include "kernels/common/config.h"

namespace tf_smddp::mpi {

// In this order: the file that SMDDP_MPI_LIBRARY names, and then no other; a library of MPI that this process
// has loaded (mpi4py has); those of the launcher's kind, beside the launcher's program, where the system
// looks, and in `prefix`/lib; and then those of the other kind, in the same way. `prefix` is Python's. Files
// that do not exist are left out, as far as that is known.
std::vector<std::string> FilesToTry(const Config& config, const std::string& prefix);

}  // namespace tf_smddp::mpi

#endif  // TF_SMDDP_KERNELS_MPI_SEARCH_H_

// Found libraries: which libraries of others the engine finds at run time, for `smddprun --check`.
//
// Place in the stack: below the C API. The searches themselves are where the libraries are
// used: cuda/driver.h, collectives/backends/nccl/nccl_library.h, mpi/search.h.
#ifndef TF_SMDDP_KERNELS_PROCESS_FOUND_LIBRARIES_H_
#define TF_SMDDP_KERNELS_PROCESS_FOUND_LIBRARIES_H_

#include <string>

#include "kernels/common/status.h"

namespace tf_smddp {

// Sets *lines to a line for each of the CUDA driver, NCCL and MPI: its name, "found" or "missing", and its
// version and path or why there is none, with tabs between them. It opens the libraries as init() does in
// this process, and initialises none: no GPU is used, and no other process is waited for. `nccl_library` and
// `prefix`: as for StartGlobalEngine. Errors: those of ReadConfig.
Status FindLibraries(const std::string& nccl_library, const std::string& prefix, std::string* lines);

}  // namespace tf_smddp

#endif  // TF_SMDDP_KERNELS_PROCESS_FOUND_LIBRARIES_H_

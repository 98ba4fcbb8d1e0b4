// Affinity: a warning for a rank that may use one core only.
//
// Place in the stack: the bottom. Launchers bind processes to cores, and Open MPI does it by default for one
// or two ranks; nothing in this project does.
#ifndef TF_SMDDP_KERNELS_COMMON_AFFINITY_H_
#define TF_SMDDP_KERNELS_COMMON_AFFINITY_H_

#include <string>

#include "kernels/common/config.h"

namespace tf_smddp {

// Returns a warning for the user when a launcher other than smddprun started this process, and the calling
// thread may run on one core of several; else an empty text. init()'s thread has the affinity that the
// launcher set. Any thread.
std::string AffinityWarning(const Config& config);

// Does the same for given numbers of cores: those that this process may use, and those of the machine.
std::string AffinityWarning(const Config& config, int usable_cores, int machine_cores);

}  // namespace tf_smddp

#endif  // TF_SMDDP_KERNELS_COMMON_AFFINITY_H_

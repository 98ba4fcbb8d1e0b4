// Affinity: a warning for a rank that may use one core only.
//
// Place in the stack: the bottom. The launcher binds, not we: Open MPI does so by default for one or two
// ranks.
#ifndef TF_SMDDP_KERNELS_COMMON_AFFINITY_H_
#define TF_SMDDP_KERNELS_COMMON_AFFINITY_H_

#include <string>

#include "kernels/common/config.h"

namespace tf_smddp {

// What to tell the user when a launcher other than smddprun started this process and it may run on one core
// of several; else empty. Any thread: the affinity is that of the calling thread, which init()'s thread has
// from the launcher.
std::string AffinityWarning(const Config& config);

// The same for given numbers of cores: those that this process may use, and the machine's.
std::string AffinityWarning(const Config& config, int usable_cores, int machine_cores);

}  // namespace tf_smddp

#endif  // TF_SMDDP_KERNELS_COMMON_AFFINITY_H_

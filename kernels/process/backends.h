// The backends that there are (kernels/collectives/backend.h).
#ifndef TF_SMDDP_KERNELS_PROCESS_BACKENDS_H_
#define TF_SMDDP_KERNELS_PROCESS_BACKENDS_H_

#include "kernels/collectives/backend.h"

namespace tf_smddp {

// All of them, for one engine.
Backends AllBackends();

}  // namespace tf_smddp

#endif  // TF_SMDDP_KERNELS_PROCESS_BACKENDS_H_

// The backend for communicators of one host: chunks, own output and staged.
#ifndef TF_SMDDP_KERNELS_COLLECTIVES_BACKENDS_SHARED_MEMORY_SHARED_MEMORY_BACKEND_H_
#define TF_SMDDP_KERNELS_COLLECTIVES_BACKENDS_SHARED_MEMORY_SHARED_MEMORY_BACKEND_H_

#include <memory>

#include "kernels/collectives/backend.h"

namespace tf_smddp {

std::unique_ptr<Backend> SharedMemoryBackend();

}  // namespace tf_smddp

#endif  // TF_SMDDP_KERNELS_COLLECTIVES_BACKENDS_SHARED_MEMORY_SHARED_MEMORY_BACKEND_H_

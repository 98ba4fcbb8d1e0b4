// The backend for tensors on GPUs, a GPU for each rank.
#ifndef TF_SMDDP_KERNELS_COLLECTIVES_BACKENDS_NCCL_NCCL_BACKEND_H_
#define TF_SMDDP_KERNELS_COLLECTIVES_BACKENDS_NCCL_NCCL_BACKEND_H_

#include <memory>

#include "kernels/collectives/backend.h"

namespace tf_smddp::nccl {

std::unique_ptr<Backend> NcclBackend();

}  // namespace tf_smddp::nccl

#endif  // TF_SMDDP_KERNELS_COLLECTIVES_BACKENDS_NCCL_NCCL_BACKEND_H_

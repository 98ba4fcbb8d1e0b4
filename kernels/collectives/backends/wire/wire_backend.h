// The backend for communicators of several hosts, for tensors in the memory of hosts.
#ifndef TF_SMDDP_KERNELS_COLLECTIVES_BACKENDS_WIRE_WIRE_BACKEND_H_
#define TF_SMDDP_KERNELS_COLLECTIVES_BACKENDS_WIRE_WIRE_BACKEND_H_

#include <memory>

#include "kernels/collectives/backend.h"

namespace tf_smddp {

std::unique_ptr<Backend> WireBackend();

}  // namespace tf_smddp

#endif  // TF_SMDDP_KERNELS_COLLECTIVES_BACKENDS_WIRE_WIRE_BACKEND_H_

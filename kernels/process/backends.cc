#include "kernels/process/backends.h"

#include "kernels/collectives/backends/nccl/nccl_backend.h"
#include "kernels/collectives/backends/shared_memory/shared_memory_backend.h"
#include "kernels/collectives/backends/wire/wire_backend.h"

namespace tf_smddp {

Backends AllBackends() {
  Backends backends;
  backends.push_back(nccl::NcclBackend());
  backends.push_back(SharedMemoryBackend());
  backends.push_back(WireBackend());
  return backends;
}

}  // namespace tf_smddp

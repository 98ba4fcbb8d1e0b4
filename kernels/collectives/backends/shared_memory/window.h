// Windows: the pieces of shared memory through which a rank stages data that are in private memory.
#ifndef TF_SMDDP_KERNELS_COLLECTIVES_BACKENDS_SHARED_MEMORY_WINDOW_H_
#define TF_SMDDP_KERNELS_COLLECTIVES_BACKENDS_SHARED_MEMORY_WINDOW_H_

#include <cstdint>

namespace tf_smddp {

// The most chunks that a rank can have staged at a time.
inline constexpr std::uint64_t kWindows = 4;

// The bytes of one rank's windows.
constexpr std::uint64_t WindowBytes(std::uint64_t chunk_bytes) { return kWindows * chunk_bytes; }

}  // namespace tf_smddp

#endif  // TF_SMDDP_KERNELS_COLLECTIVES_BACKENDS_SHARED_MEMORY_WINDOW_H_

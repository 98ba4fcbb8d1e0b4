// The kernel that makes many copies in one launch. Block (x, y) copies tile x of copy y; kCopyThreads
// threads.
#include "kernels/cuda/copy_table.h"

namespace tf_smddp::cuda {
namespace {

// Copies as many whole units as there are, of an aligned part, and returns their bytes. Each thread loads
// four units before it stores the first, so that many loads are under way.
template <typename Unit>
__device__ unsigned CopyUnits(char* to, const char* from, unsigned bytes) {
  constexpr unsigned kAtOnce = 4;
  Unit* const target = reinterpret_cast<Unit*>(to);
  const Unit* const source = reinterpret_cast<const Unit*>(from);
  const unsigned count = bytes / sizeof(Unit);
  for (unsigned first = threadIdx.x; first < count; first += kAtOnce * kCopyThreads) {
    Unit loaded[kAtOnce];
#pragma unroll
    for (unsigned k = 0; k < kAtOnce; ++k) {
      if (first + k * kCopyThreads < count) loaded[k] = source[first + k * kCopyThreads];
    }
#pragma unroll
    for (unsigned k = 0; k < kAtOnce; ++k) {
      if (first + k * kCopyThreads < count) target[first + k * kCopyThreads] = loaded[k];
    }
  }
  return count * sizeof(Unit);
}

}  // namespace

extern "C" __global__ void smddp_copy(const CopyTable table) {
  const Copy& copy = table.copies[blockIdx.y];
  const unsigned long long begin = blockIdx.x * kCopyTile;
  if (begin >= copy.bytes) return;
  const unsigned bytes = min(copy.bytes - begin, kCopyTile);
  char* const to = static_cast<char*>(copy.to) + begin;
  const char* const from = static_cast<const char*>(copy.from) + begin;
  const auto places = reinterpret_cast<unsigned long long>(to) | reinterpret_cast<unsigned long long>(from);
  unsigned copied = 0;
  if (places % sizeof(uint4) == 0) {
    copied = CopyUnits<uint4>(to, from, bytes);
  } else if (places % sizeof(unsigned) == 0) {
    copied = CopyUnits<unsigned>(to, from, bytes);
  }
  for (unsigned i = copied + threadIdx.x; i < bytes; i += kCopyThreads) to[i] = from[i];
}

}  // namespace tf_smddp::cuda

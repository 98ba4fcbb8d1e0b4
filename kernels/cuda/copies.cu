// The kernels that make many copies in one launch, as bytes or between floating-point types. Block (x, y)
// makes tile x of row y; kCopyThreads threads.
#include "kernels/cuda/copy_table.h"
#include "kernels/cuda/half_formats.h"

namespace tf_smddp::cuda {
namespace {

// The part of its row that a block copies.
struct Tile {
  unsigned long long begin;
  unsigned count;  // 0: the row has fewer tiles than others
};

__device__ Tile TileOf(const CopyRow& row) {
  const unsigned long long begin = blockIdx.x * kCopyTile;
  if (begin >= row.count) return {0, 0};
  return {begin, static_cast<unsigned>(min(row.count - begin, kCopyTile))};
}

template <typename To, typename From>
__device__ bool AreAligned(const To* to, const From* from) {
  return reinterpret_cast<unsigned long long>(to) % sizeof(To) == 0 &&
         reinterpret_cast<unsigned long long>(from) % sizeof(From) == 0;
}

// Calls convert(&to[i], from[i]) for all i below `count`. Each thread loads four before it stores the first,
// so that many loads are under way.
template <typename To, typename From, typename Convert>
__device__ void ForEach(To* to, const From* from, unsigned count, Convert convert) {
  constexpr unsigned kAtOnce = 4;
  for (unsigned first = threadIdx.x; first < count; first += kAtOnce * kCopyThreads) {
    From loaded[kAtOnce];
#pragma unroll
    for (unsigned k = 0; k < kAtOnce; ++k) {
      if (first + k * kCopyThreads < count) loaded[k] = from[first + k * kCopyThreads];
    }
#pragma unroll
    for (unsigned k = 0; k < kAtOnce; ++k) {
      if (first + k * kCopyThreads < count) convert(&to[first + k * kCopyThreads], loaded[k]);
    }
  }
}

// Copies as many whole units as there are, if they are aligned, and returns their bytes.
template <typename Unit>
__device__ unsigned CopyUnits(char* to, const char* from, unsigned bytes) {
  Unit* const target = reinterpret_cast<Unit*>(to);
  const Unit* const source = reinterpret_cast<const Unit*>(from);
  if (!AreAligned(target, source)) return 0;
  ForEach(target, source, bytes / sizeof(Unit), [](Unit* unit, const Unit& value) { *unit = value; });
  return bytes / sizeof(Unit) * sizeof(Unit);
}

// Converts the elements of this block's tile, four at once where they are aligned; To4 and From4 are four of
// them.
template <typename To, typename To4, typename From, typename From4, typename Convert>
__device__ void ConvertTile(const CopyTable& table, Convert convert) {
  const CopyRow& row = table.rows[blockIdx.y];
  const Tile tile = TileOf(row);
  To* const to = static_cast<To*>(row.to) + tile.begin;
  const From* const from = static_cast<const From*>(row.from) + tile.begin;
  To4* const to4 = reinterpret_cast<To4*>(to);
  const From4* const from4 = reinterpret_cast<const From4*>(from);
  unsigned done = 0;
  if (AreAligned(to4, from4)) {
    done = tile.count / 4 * 4;
    ForEach(to4, from4, tile.count / 4, [=](To4* result, const From4& four) {
      *result = {convert(four.x), convert(four.y), convert(four.z), convert(four.w)};
    });
  }
  for (unsigned i = done + threadIdx.x; i < tile.count; i += kCopyThreads) to[i] = convert(from[i]);
}

template <typename Format>
__device__ void Compress(const CopyTable& table) {
  ConvertTile<unsigned short, ushort4, float, float4>(table,
                                                      [](float value) { return Format::FromFloat(value); });
}

template <typename Format>
__device__ void Decompress(const CopyTable& table) {
  ConvertTile<float, float4, unsigned short, ushort4>(
      table, [](unsigned short bits) { return Format::ToFloat(bits); });
}

}  // namespace

extern "C" __global__ void smddp_copy(const CopyTable table) {
  const CopyRow& row = table.rows[blockIdx.y];
  const Tile tile = TileOf(row);
  char* const to = static_cast<char*>(row.to) + tile.begin;
  const char* const from = static_cast<const char*>(row.from) + tile.begin;
  unsigned copied = CopyUnits<uint4>(to, from, tile.count);
  if (copied == 0) copied = CopyUnits<unsigned>(to, from, tile.count);
  for (unsigned i = copied + threadIdx.x; i < tile.count; i += kCopyThreads) to[i] = from[i];
}

extern "C" __global__ void smddp_float32_to_float16(const CopyTable table) { Compress<Float16>(table); }
extern "C" __global__ void smddp_float16_to_float32(const CopyTable table) { Decompress<Float16>(table); }
extern "C" __global__ void smddp_float32_to_bfloat16(const CopyTable table) { Compress<BFloat16>(table); }
extern "C" __global__ void smddp_bfloat16_to_float32(const CopyTable table) { Decompress<BFloat16>(table); }

}  // namespace tf_smddp::cuda

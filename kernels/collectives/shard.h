// Shard arithmetic: how n elements, or rows, are divided among participants. It is pure.
#ifndef TF_SMDDP_KERNELS_COLLECTIVES_SHARD_H_
#define TF_SMDDP_KERNELS_COLLECTIVES_SHARD_H_

#include <algorithm>
#include <cstdint>

namespace tf_smddp {

struct Shard {
  std::uint64_t begin;
  std::uint64_t count;
};

// Cuts [0, count) into `num_shards` consecutive shards, and returns number `index`. Each has the same number
// of elements, a multiple of `granule`, so that a cache line has one writer; only the last one that is not
// empty may be shorter, and those after it are empty.
inline Shard ShardOf(std::uint64_t count, int num_shards, int index, std::uint64_t granule) {
  const auto shards = static_cast<std::uint64_t>(num_shards);
  const std::uint64_t even = (count + shards - 1) / shards;
  const std::uint64_t step = (even + granule - 1) / granule * granule;
  const std::uint64_t begin = std::min(count, step * static_cast<std::uint64_t>(index));
  return {begin, std::min(count - begin, step)};
}

// Cuts [0, count) into `num_shards` consecutive shards as evenly as possible, and returns number `index`. The
// first `count` mod `num_shards` shards have one element more than the others.
inline Shard EvenShardOf(std::uint64_t count, int num_shards, int index) {
  const auto shards = static_cast<std::uint64_t>(num_shards);
  const auto number = static_cast<std::uint64_t>(index);
  const std::uint64_t less = count / shards;
  const std::uint64_t longer = count % shards;
  return {number * less + std::min(number, longer), less + (number < longer ? 1 : 0)};
}

}  // namespace tf_smddp

#endif  // TF_SMDDP_KERNELS_COLLECTIVES_SHARD_H_

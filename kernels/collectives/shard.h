// Shard arithmetic: which part of n elements, or rows, is rank r's. Pure.
#ifndef TF_SMDDP_KERNELS_COLLECTIVES_SHARD_H_
#define TF_SMDDP_KERNELS_COLLECTIVES_SHARD_H_

#include <algorithm>
#include <cstdint>

namespace tf_smddp {

struct Shard {
  std::uint64_t begin;
  std::uint64_t count;
};

// Cuts [0, count) into `num_ranks` consecutive shards. All but the last that is not empty have the same
// number of elements, a multiple of `granule` (so that a cache line has one writer); later ones may be empty.
inline Shard ShardOf(std::uint64_t count, int num_ranks, int rank, std::uint64_t granule) {
  const auto ranks = static_cast<std::uint64_t>(num_ranks);
  const std::uint64_t even = (count + ranks - 1) / ranks;
  const std::uint64_t step = (even + granule - 1) / granule * granule;
  const std::uint64_t begin = std::min(count, step * static_cast<std::uint64_t>(rank));
  return {begin, std::min(count - begin, step)};
}

// Cuts [0, count) as evenly as can be: the first `count` mod `num_ranks` shards have one more than the
// others.
inline Shard EvenShardOf(std::uint64_t count, int num_ranks, int rank) {
  const auto ranks = static_cast<std::uint64_t>(num_ranks);
  const auto index = static_cast<std::uint64_t>(rank);
  const std::uint64_t less = count / ranks;
  const std::uint64_t longer = count % ranks;
  return {index * less + std::min(index, longer), less + (index < longer ? 1 : 0)};
}

}  // namespace tf_smddp

#endif  // TF_SMDDP_KERNELS_COLLECTIVES_SHARD_H_

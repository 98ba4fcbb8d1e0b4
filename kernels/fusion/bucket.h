// Bucket arithmetic: decides when a batch of ready requests is full. Pure functions with the same result on
// all ranks.
//
// The launch log keeps the weight of the open batch as one small number of units. These functions convert
// bytes to units and decide whether a request seals the batch.
#ifndef TF_SMDDP_KERNELS_FUSION_BUCKET_H_
#define TF_SMDDP_KERNELS_FUSION_BUCKET_H_

#include <algorithm>
#include <cstdint>

namespace tf_smddp {

// The bytes of one unit. The bucket cap must be a multiple of it.
inline constexpr std::uint64_t kBucketUnitBytes = 128;

// Returns the weight of a request of `bytes` bytes. It is at least 1, so that an open batch never weighs 0.
inline std::uint64_t BucketUnits(std::uint64_t bytes) {
  return std::max<std::uint64_t>(1, (bytes + kBucketUnitBytes - 1) / kBucketUnitBytes);
}

// Returns the weight of the open batch after a request of `bytes` bytes has joined a batch of `open_units`,
// or 0 if the request seals the batch: because the cap is reached, or because `seals` is set.
inline std::uint64_t OpenAfter(std::uint64_t open_units, std::uint64_t bytes, bool seals,
                               std::uint64_t cap_bytes) {
  const std::uint64_t units = open_units + BucketUnits(bytes);
  return seals || units >= cap_bytes / kBucketUnitBytes ? 0 : units;
}

}  // namespace tf_smddp

#endif  // TF_SMDDP_KERNELS_FUSION_BUCKET_H_

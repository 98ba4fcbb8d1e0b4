// Bucket arithmetic: when ready requests go out together. Pure; the same on all ranks.
//
// The launch log keeps one small number for the open batch, its weight in units; these turn bytes into units
// and decide the seal.
#ifndef TF_SMDDP_KERNELS_FUSION_BUCKET_H_
#define TF_SMDDP_KERNELS_FUSION_BUCKET_H_

#include <algorithm>
#include <cstdint>

namespace tf_smddp {

// Bytes of one unit: what the bucket cap must be a multiple of, as in SMDDP's `bucket_cap_mb`.
inline constexpr std::uint64_t kBucketUnitBytes = 128;

// The weight of a request of `bytes` bytes: at least 1, so that an open batch never weighs 0.
inline std::uint64_t BucketUnits(std::uint64_t bytes) {
  return std::max<std::uint64_t>(1, (bytes + kBucketUnitBytes - 1) / kBucketUnitBytes);
}

// What is open after a request of `bytes` joins a batch that weighs `open_units`: 0 when that seals it,
// because the cap is reached or the request is the last of its group.
inline std::uint64_t OpenAfter(std::uint64_t open_units, std::uint64_t bytes, bool last_of_group,
                               std::uint64_t cap_bytes) {
  const std::uint64_t units = open_units + BucketUnits(bytes);
  return last_of_group || units >= cap_bytes / kBucketUnitBytes ? 0 : units;
}

}  // namespace tf_smddp

#endif  // TF_SMDDP_KERNELS_FUSION_BUCKET_H_

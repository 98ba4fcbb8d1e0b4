// Manifest: what must be equal on all ranks that meet in one collective.
//
// Place in the stack: above common/. The first rank to arrive writes its manifest into shared memory; each
// later one compares. Plain old data of a fixed size, because it lies there.
#ifndef TF_SMDDP_KERNELS_CONTROL_MANIFEST_H_
#define TF_SMDDP_KERNELS_CONTROL_MANIFEST_H_

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/common/types.h"

namespace tf_smddp {

struct Manifest {
  static constexpr int kShownDims = 8;
  static constexpr int kLabelBytes = 96;

  CollectiveKind kind;
  DType dtype;
  ReduceOp op;
  std::uint8_t shape_rank;   // number of dimensions
  std::int32_t root;         // a rank; -1 where there is none
  std::uint32_t num_params;  // tensors in the group; 0 where there is no group
  std::uint32_t param_index;
  std::uint64_t count;            // elements; of one row, where the first dimension may differ
  std::uint64_t dims_hash;        // over all dimensions; without the first, where it may differ
  std::int64_t dims[kShownDims];  // the first ones, for messages
  double prescale;
  double postscale;
  char label[kLabelBytes];  // for messages only, cut to fit (utf8.h): names may differ between ranks
};

// What a manifest is made from.
struct Traits {
  CollectiveKind kind;
  DType dtype;
  ReduceOp op;
  double prescale;
  double postscale;
  int root;
  std::uint32_t param_index;
  std::uint32_t num_params;
};

// Fills every field. `shape` in elements; `label` is cut to fit. What does not count for this kind (the op of
// a broadcast) is left out.
Manifest MakeManifest(const Traits& traits, const std::vector<std::int64_t>& shape, const std::string& label);

// True when both may meet: all but the label is equal.
bool SameManifest(const Manifest& a, const Manifest& b);

// "allreduce 'dense/kernel' average float32 [64, 10], parameter 3 of 214".
std::string DescribeManifest(const Manifest& manifest);

}  // namespace tf_smddp

#endif  // TF_SMDDP_KERNELS_CONTROL_MANIFEST_H_

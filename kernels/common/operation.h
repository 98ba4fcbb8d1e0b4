// Operation: what a collective does to its tensors, whatever their sizes and places. It is the same on all
// ranks.
//
// Place in the stack: the bottom. A graph op's attributes, the engine's requests, the manifests that ranks
// compare, the data plane's calls and XLA's call descriptions each hold one.
#ifndef TF_SMDDP_KERNELS_COMMON_OPERATION_H_
#define TF_SMDDP_KERNELS_COMMON_OPERATION_H_

#include <cstdint>

#include "kernels/common/collective_info.h"
#include "kernels/common/rank_id.h"
#include "kernels/common/types.h"

namespace tf_smddp {

// How a reduction's elements may travel: float32 in a format of 16 bits, where they cross a link between
// GPUs or hosts. A reduction in memory that all ranks read does not compress.
enum class Compression : std::uint8_t { kNone, kFloat16, kBFloat16 };

// The members are in this order so that there are few gaps: manifests lie in shared memory.
struct Operation {
  CollectiveKind kind = CollectiveKind::kAllreduce;
  DType dtype = DType::kFloat32;
  ReduceOp op = ReduceOp::kSum;  // for reductions
  RankId root;                   // no rank where the collective has no root; kReducescatter may have one
  double prescale = 1.0;         // for reductions of inexact types: each input is multiplied by it
  double postscale = 1.0;        // likewise the result
  Compression compression = Compression::kNone;  // for reductions

  friend bool operator==(const Operation& a, const Operation& b) {
    return a.kind == b.kind && a.dtype == b.dtype && a.op == b.op && a.root == b.root &&
           a.prescale == b.prescale && a.postscale == b.postscale && a.compression == b.compression;
  }
  friend bool operator!=(const Operation& a, const Operation& b) { return !(a == b); }
};

}  // namespace tf_smddp

#endif  // TF_SMDDP_KERNELS_COMMON_OPERATION_H_

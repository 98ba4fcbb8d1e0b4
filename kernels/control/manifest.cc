#include "kernels/control/manifest.h"

#include <algorithm>
#include <cstring>

#include "kernels/common/decimal_text.h"
#include "kernels/common/utf8.h"

namespace tf_smddp {

Manifest MakeManifest(const Traits& traits, const std::vector<std::int64_t>& shape,
                      const std::string& label) {
  Manifest manifest;
  const bool reduces = IsReduction(traits.kind);
  manifest.kind = traits.kind;
  manifest.dtype = traits.dtype;
  manifest.op = reduces ? traits.op : ReduceOp{};
  manifest.prescale = reduces ? traits.prescale : 0.0;
  manifest.postscale = reduces ? traits.postscale : 0.0;
  manifest.shape_rank = static_cast<std::uint8_t>(std::min<std::size_t>(shape.size(), 255));
  manifest.root = traits.root;
  manifest.num_params = traits.num_params;
  manifest.param_index = traits.param_index;
  manifest.count = 1;
  manifest.dims_hash = 0xcbf29ce484222325u;  // FNV-1a
  for (std::size_t i = 0; i < Manifest::kShownDims; ++i) manifest.dims[i] = i < shape.size() ? shape[i] : 0;
  for (std::size_t i = 0; i < shape.size(); ++i) {
    if (i == 0 && RowsMayDiffer(traits.kind)) continue;
    manifest.count *= static_cast<std::uint64_t>(shape[i]);
    manifest.dims_hash = (manifest.dims_hash ^ static_cast<std::uint64_t>(shape[i])) * 0x100000001b3u;
  }
  const std::size_t label_bytes = CopyUtf8(label, manifest.label, Manifest::kLabelBytes);
  std::memset(manifest.label + label_bytes, 0, Manifest::kLabelBytes - label_bytes);
  return manifest;
}

bool SameManifest(const Manifest& a, const Manifest& b) {
  return a.kind == b.kind && a.dtype == b.dtype && a.op == b.op && a.root == b.root &&
         a.num_params == b.num_params && a.param_index == b.param_index && a.shape_rank == b.shape_rank &&
         a.count == b.count && a.dims_hash == b.dims_hash && a.prescale == b.prescale &&
         a.postscale == b.postscale;
}

std::string DescribeManifest(const Manifest& manifest) {
  // The bytes may come from a peer: nothing in them is trusted to be in range.
  const auto kind = static_cast<int>(manifest.kind);
  const auto dtype = static_cast<int>(manifest.dtype);
  const auto op = static_cast<int>(manifest.op);
  std::string text = kind < kNumCollectiveKinds ? CollectiveKindName(manifest.kind) : "unknown collective";
  const std::string label(manifest.label, ::strnlen(manifest.label, Manifest::kLabelBytes));
  if (!label.empty()) text += " '" + label + "'";
  if (manifest.kind == CollectiveKind::kBarrier || manifest.kind == CollectiveKind::kCommunicator)
    return text;
  if (IsReduction(manifest.kind) && op < kNumReduceOps) text += std::string(" ") + ReduceOpName(manifest.op);
  if (dtype < kNumDTypes) text += std::string(" ") + DTypeName(manifest.dtype);
  text += " [";
  for (int i = 0; i < manifest.shape_rank && i < Manifest::kShownDims; ++i) {
    text += (i > 0 ? ", " : "") + std::to_string(manifest.dims[i]);
  }
  text += manifest.shape_rank > Manifest::kShownDims ? ", ...]" : "]";
  if (IsReduction(manifest.kind) && manifest.prescale != 1.0) {
    text += ", prescale " + DecimalText(manifest.prescale);
  }
  if (IsReduction(manifest.kind) && manifest.postscale != 1.0) {
    text += ", postscale " + DecimalText(manifest.postscale);
  }
  if (manifest.root >= 0) text += ", root " + std::to_string(manifest.root);
  if (manifest.num_params > 0) {
    text +=
        ", parameter " + std::to_string(manifest.param_index) + " of " + std::to_string(manifest.num_params);
  }
  return text;
}

}  // namespace tf_smddp

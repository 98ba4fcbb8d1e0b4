#include "kernels/control/manifest.h"

#include <algorithm>
#include <cstring>

#include "kernels/common/decimal_text.h"
#include "kernels/common/utf8.h"

namespace tf_smddp {

Manifest MakeManifest(const Operation& operation, std::uint32_t param_index, std::uint32_t num_params,
                      const std::vector<std::int64_t>& shape, const std::string& label) {
  Manifest manifest;
  manifest.operation = operation;
  if (!IsReduction(operation.kind)) {
    manifest.operation.op = ReduceOp::kSum;
    manifest.operation.prescale = manifest.operation.postscale = 1.0;
    manifest.operation.compression = Compression::kNone;
  }
  manifest.shape_rank = static_cast<std::uint8_t>(std::min<std::size_t>(shape.size(), 255));
  manifest.num_params = num_params;
  manifest.param_index = param_index;
  manifest.count = 1;
  manifest.dims_hash = 0xcbf29ce484222325u;  // FNV-1a
  for (std::size_t i = 0; i < Manifest::kShownDims; ++i) manifest.dims[i] = i < shape.size() ? shape[i] : 0;
  for (std::size_t i = 0; i < shape.size(); ++i) {
    if (i == 0 && RowsMayDiffer(operation.kind)) continue;
    manifest.count *= static_cast<std::uint64_t>(shape[i]);
    manifest.dims_hash = (manifest.dims_hash ^ static_cast<std::uint64_t>(shape[i])) * 0x100000001b3u;
  }
  const std::size_t label_bytes = CopyUtf8(label, manifest.label, Manifest::kLabelBytes);
  std::memset(manifest.label + label_bytes, 0, Manifest::kLabelBytes - label_bytes);
  return manifest;
}

bool SameManifest(const Manifest& a, const Manifest& b) {
  return a.operation == b.operation && a.num_params == b.num_params && a.param_index == b.param_index &&
         a.shape_rank == b.shape_rank && a.count == b.count && a.dims_hash == b.dims_hash;
}

std::string DescribeManifest(const Manifest& manifest) {
  // A peer may have written the manifest, so no value is known to be in range.
  const Operation& operation = manifest.operation;
  const auto kind = static_cast<int>(operation.kind);
  const auto dtype = static_cast<int>(operation.dtype);
  const auto op = static_cast<int>(operation.op);
  std::string text = kind < kNumCollectiveKinds ? CollectiveKindName(operation.kind) : "unknown collective";
  const std::string label(manifest.label, ::strnlen(manifest.label, Manifest::kLabelBytes));
  if (!label.empty()) text += " '" + label + "'";
  if (kind >= kNumCollectiveKinds || InfoOf(operation.kind).Is(kHasNoTensor)) return text;
  if (IsReduction(operation.kind) && op < kNumReduceOps)
    text += std::string(" ") + ReduceOpName(operation.op);
  if (dtype < kNumDTypes) text += std::string(" ") + DTypeName(operation.dtype);
  text += " [";
  for (int i = 0; i < manifest.shape_rank && i < Manifest::kShownDims; ++i) {
    text += (i > 0 ? ", " : "") + std::to_string(manifest.dims[i]);
  }
  text += manifest.shape_rank > Manifest::kShownDims ? ", ...]" : "]";
  if (IsReduction(operation.kind) && operation.prescale != 1.0) {
    text += ", prescale " + DecimalText(operation.prescale);
  }
  if (IsReduction(operation.kind) && operation.postscale != 1.0) {
    text += ", postscale " + DecimalText(operation.postscale);
  }
  if (operation.compression == Compression::kFloat16) text += ", compressed to float16";
  if (operation.compression == Compression::kBFloat16) text += ", compressed to bfloat16";
  if (operation.root.value() >= 0) text += ", root " + std::to_string(operation.root.value());
  if (manifest.num_params > 0) {
    text +=
        ", parameter " + std::to_string(manifest.param_index) + " of " + std::to_string(manifest.num_params);
  }
  return text;
}

}  // namespace tf_smddp

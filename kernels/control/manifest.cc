#include "kernels/control/manifest.h"

#include <algorithm>
#include <cstring>
#include <iterator>

#include "kernels/common/number_text.h"
#include "kernels/common/utf8.h"

namespace tf_smddp {
namespace {

constexpr std::uint64_t kHashBasis = 0xcbf29ce484222325u, kHashPrime = 0x100000001b3u;  // FNV-1a

bool SameTensor(const Manifest& a, const Manifest& b) {
  return a.operation == b.operation && a.num_params == b.num_params && a.param_index == b.param_index &&
         a.shape_rank == b.shape_rank && a.count == b.count && a.dims_hash == b.dims_hash;
}

bool SameVariable(const Meaning& a, const Meaning& b) {
  return a.variable == b.variable || a.variable == 0 || b.variable == 0;
}

}  // namespace

std::uint64_t HashOfName(const std::string& name) {
  std::uint64_t hash = kHashBasis;
  for (const char each : name) hash = (hash ^ static_cast<unsigned char>(each)) * kHashPrime;
  return std::max<std::uint64_t>(hash, 1);
}

Manifest MakeManifest(const Operation& operation, std::uint32_t param_index, std::uint32_t num_params,
                      const std::vector<std::int64_t>& shape, const std::string& label,
                      const Meaning& meaning) {
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
  manifest.dims_hash = kHashBasis;
  manifest.meaning = meaning;
  for (std::size_t i = 0; i < Manifest::kShownDims; ++i) manifest.dims[i] = i < shape.size() ? shape[i] : 0;
  for (std::size_t i = 0; i < shape.size(); ++i) {
    if (i == 0 && RowsMayDiffer(operation.kind)) continue;
    manifest.count *= static_cast<std::uint64_t>(shape[i]);
    manifest.dims_hash = (manifest.dims_hash ^ static_cast<std::uint64_t>(shape[i])) * kHashPrime;
  }
  const std::size_t label_bytes = CopyUtf8(label, manifest.label, Manifest::kLabelBytes);
  std::memset(manifest.label + label_bytes, 0, Manifest::kLabelBytes - label_bytes);
  return manifest;
}

bool SameManifest(const Manifest& a, const Manifest& b) {
  return SameTensor(a, b) && a.meaning.name == b.meaning.name && a.meaning.gradient == b.meaning.gradient &&
         SameVariable(a.meaning, b.meaning);
}

bool IdenticalManifests(const Manifest& a, const Manifest& b) {
  return SameManifest(a, b) && a.meaning.variable == b.meaning.variable &&
         std::equal(std::begin(a.dims), std::end(a.dims), std::begin(b.dims)) &&
         std::equal(std::begin(a.label), std::end(a.label), std::begin(b.label));
}

std::string DescribeCause(const Manifest& a, const Manifest& b) {
  const bool gradients = a.meaning.gradient > 0 && b.meaning.gradient > 0;
  const std::string in_common =
      "All ranks must run the same collectives in the same order, with the same shapes, types and ops. "
      "Likely causes: one rank ran a collective more (a step more, a metric on one rank only), or the model "
      "or the batch differs between ranks";
  if (!SameTensor(a, b)) {
    return gradients ? in_common + ", or other gradients are None on one rank" : in_common;
  }
  if (a.meaning.name != b.meaning.name) {
    return "The shapes agree, but the tensors have different names (name=), so they are different tensors. "
           "All ranks must run the same collectives in the same order, with the same names. Likely causes: "
           "the calls are in another order on one rank, one rank ran a collective more, or a name depends on "
           "the rank";
  }
  if (gradients && a.meaning.gradient != b.meaning.gradient) {
    return "The shapes agree, but these are the gradients of different variables: number " +
           std::to_string(a.meaning.gradient - 1) + " and number " + std::to_string(b.meaning.gradient - 1) +
           " (counted from 0) in the ranks' lists. Likely cause: other gradients are None on one rank, since "
           "its loss does not depend on the same variables. Let each rank's loss depend on all that any rank "
           "trains, for example by + 0.0 * tf.reduce_sum(variable)";
  }
  if (gradients) {
    return "The shapes agree, but these are the gradients of different variables: the ranks' lists of "
           "variables are in another order, or other gradients are None. Give them in the same order on all "
           "ranks (a set has none)";
  }
  return in_common;
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

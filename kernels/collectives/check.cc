// Collective::Check: what can be said about a request without its peers. Errors name the value and the
// remedy.
#include <algorithm>
#include <cmath>
#include <string>

#include "kernels/collectives/collective.h"
#include "kernels/common/number_text.h"

namespace tf_smddp {
namespace {

Status CheckReduction(const Operation& operation) {
  const auto& [kind, dtype, op, root, prescale, postscale, compression] = operation;
  const bool defined = ReduceOpDefined(dtype, op);
  if (defined && prescale == 1.0 && postscale == 1.0) return {};
  const std::string with = std::string(CollectiveKindName(kind)) + " with ";
  if (!defined) {
    return InvalidArgument(
        with + "op " + ReduceOpName(op) + " is not defined for " + DTypeName(dtype) +
        (InfoOf(dtype).arithmetic == Arithmetic::kLogical
             ? "; use min (logical and) or max (logical or), or cast"
             : ", which has no order; reduce the real and the imaginary part by themselves"));
  }
  const std::string factors =
      with + "prescale " + DecimalText(prescale) + " and postscale " + DecimalText(postscale);
  if (!std::isfinite(prescale) || !std::isfinite(postscale)) {
    return InvalidArgument(factors + "; both must be finite");
  }
  if (!IsInexact(dtype)) {
    return InvalidArgument(factors + " is not defined for " + DTypeName(dtype) +
                           "; cast to a floating type first");
  }
  return {};
}

// Their sum must fit the type in which it is added (kernels/reduce/reduce.h).
constexpr std::size_t kMostShortsAveraged = 256;

// "0 to 3", or "0, 2" where ranks are left out.
std::string List(const std::vector<int>& ranks) {
  if (ranks.size() > 1 && ranks.back() - ranks.front() + 1 == static_cast<int>(ranks.size())) {
    return std::to_string(ranks.front()) + " to " + std::to_string(ranks.back());
  }
  std::string text;
  for (const int rank : ranks) text += (text.empty() ? "" : ", ") + std::to_string(rank);
  return text;
}

}  // namespace

Status Collective::Check(const Arguments& arguments) const {
  const Operation& operation = arguments.operation;
  const CollectiveInfo& info = InfoOf(operation.kind);
  if (info.Is(kReduces)) {
    Status status = CheckReduction(operation);
    if (!status.ok()) return status;
    const bool shorts = operation.dtype == DType::kInt16 || operation.dtype == DType::kUInt16;
    if (shorts && operation.op == ReduceOp::kAverage && arguments.ranks.size() > kMostShortsAveraged) {
      return InvalidArgument(std::string(info.name) + " with the average of " + DTypeName(operation.dtype) +
                             " over " + std::to_string(arguments.ranks.size()) + " ranks, more than " +
                             std::to_string(kMostShortsAveraged) + "; cast to int32 first");
    }
  }
  if ((info.Is(kHasRoot) || operation.root.valid()) &&
      !std::binary_search(arguments.ranks.begin(), arguments.ranks.end(), operation.root.value())) {
    return InvalidArgument(std::string(info.name) + " with root rank " +
                           std::to_string(operation.root.value()) +
                           ", which is not in its process set, whose ranks are " + List(arguments.ranks));
  }
  if (reach() == Reach::kOwnOutput && arguments.shape.empty()) {
    return InvalidArgument(std::string(info.name) + " of a scalar, which has no rows; reshape it to [1]");
  }
  return {};
}

}  // namespace tf_smddp

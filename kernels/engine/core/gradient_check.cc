#include "kernels/engine/core/gradient_check.h"

#include <string>

#include "kernels/control/ticket.h"

namespace tf_smddp {
namespace {

constexpr std::uint64_t kFirst = 3;
constexpr std::uint64_t kEvery = 101;

// A floating number is not finite if all bits of its exponent are set.
template <typename Bits>
bool AllHave(Bits exponent, const void* data, std::uint64_t bytes) {
  const Bits* const begin = static_cast<const Bits*>(data);
  const Bits* const end = begin + bytes / sizeof(Bits);
  bool broken = false;
  for (const Bits* each = begin; each != end; ++each) broken |= (*each & exponent) == exponent;
  return !broken;
}

}  // namespace

bool AllFinite(DType dtype, const void* data, std::uint64_t bytes) {
  switch (dtype) {
    case DType::kBFloat16:
      return AllHave<std::uint16_t>(0x7f80, data, bytes);
    case DType::kFloat32:
    case DType::kComplex64:
      return AllHave<std::uint32_t>(0x7f800000, data, bytes);
    case DType::kFloat64:
    case DType::kComplex128:
      return AllHave<std::uint64_t>(0x7ff0000000000000, data, bytes);
    default:
      return true;
  }
}

void GradientCheck::Look(const Request& request, const Manifest& manifest, std::uint64_t ticket,
                         const Logger& logger) {
  const std::uint64_t group = NumberOf(ticket);
  if (manifest.meaning.gradient == 0 || (group >= kFirst && group % kEvery != 0)) return;
  if (!request.input.on_host() || warned_.load(std::memory_order_relaxed)) return;
  if (AllFinite(request.operation.dtype, request.input.data, InputBytes(request)) || warned_.exchange(true)) {
    return;
  }
  logger.Log(
      LogLevel::kWarning,
      "this rank's gradient has a NaN or an infinity before it is reduced, in the group of tensors number " +
          std::to_string(group) + " (counted from 0): " + DescribeManifest(manifest) +
          ". After that, all ranks' weights have it: look at the data of this rank. Only a loss scale "
          "skips such a step; then ignore this");
}

}  // namespace tf_smddp

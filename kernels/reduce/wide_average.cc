#include "kernels/reduce/wide_average.h"

#include <cstdint>
#include <type_traits>

namespace tf_smddp {
namespace {

__extension__ using Int128 = __int128;
__extension__ using UInt128 = unsigned __int128;

}  // namespace

template <typename T>
void WideAverage(const KernelArgs& args) {
  using Wide = std::conditional_t<std::is_signed_v<T>, Int128, UInt128>;
  const T divisor = static_cast<T>(args.factors.divisor);
  for (std::size_t e = 0; e < args.count; ++e) {
    Wide sum = 0;
    for (int i = 0; i < args.num_inputs; ++i) sum += static_cast<const T*>(args.inputs[i])[e];
    // Dividing 128 bits is a function call, which is rarely needed. The divisor is at least 2, so neither
    // quotient overflows.
    const T narrow = static_cast<T>(sum);
    const T average = narrow == sum ? narrow / divisor : static_cast<T>(sum / divisor);
    for (int k = 0; k < args.num_outputs; ++k) static_cast<T*>(args.outputs[k])[e] = average;
  }
}

template void WideAverage<std::int64_t>(const KernelArgs& args);
template void WideAverage<std::uint64_t>(const KernelArgs& args);

}  // namespace tf_smddp

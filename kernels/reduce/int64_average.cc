#include "kernels/reduce/int64_average.h"

#include <cstdint>

namespace tf_smddp {

void Int64Average(const KernelArgs& args) {
  __extension__ using Int128 = __int128;
  const std::int64_t divisor = args.divisor;
  for (std::size_t e = 0; e < args.count; ++e) {
    Int128 sum = 0;
    for (int i = 0; i < args.num_inputs; ++i) sum += static_cast<const std::int64_t*>(args.inputs[i])[e];
    // Dividing 128 bits is a function call, and rarely needed. The divisor is at least 2, so
    // neither overflows.
    const auto narrow = static_cast<std::int64_t>(sum);
    const std::int64_t average = narrow == sum ? narrow / divisor : static_cast<std::int64_t>(sum / divisor);
    for (int k = 0; k < args.num_outputs; ++k) static_cast<std::int64_t*>(args.outputs[k])[e] = average;
  }
}

}  // namespace tf_smddp

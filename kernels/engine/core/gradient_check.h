// GradientCheck: warns of a NaN or an infinity in this rank's gradients, before they are reduced: afterwards
// all ranks have it, and nothing tells whose it was.
//
// Place in the stack: above request.h. Submission calls it for each request. It looks at the first three
// groups of tensors of each communicator, and then at each 101st (a prime, so that a step of several groups
// has none that is never looked at). So it reads 1 % of the gradients once more. It looks at host memory
// alone, and not at float16, whose loss scale finds its value by overflows.
#ifndef TF_SMDDP_KERNELS_ENGINE_CORE_GRADIENT_CHECK_H_
#define TF_SMDDP_KERNELS_ENGINE_CORE_GRADIENT_CHECK_H_

#include <atomic>
#include <cstdint>

#include "kernels/common/logging.h"
#include "kernels/control/manifest.h"
#include "kernels/engine/request.h"

namespace tf_smddp {

class GradientCheck {
 public:
  // Logs a warning, the first time, if `request` is a gradient that is not finite. `ticket`: which group of
  // its communicator it belongs to. Any thread.
  void Look(const Request& request, const Manifest& manifest, std::uint64_t ticket, const Logger& logger);

 private:
  std::atomic<bool> warned_{false};
};

// Whether all elements are finite: `bytes` bytes of a floating or complex type, but float16. True for others.
bool AllFinite(DType dtype, const void* data, std::uint64_t bytes);

}  // namespace tf_smddp

#endif  // TF_SMDDP_KERNELS_ENGINE_CORE_GRADIENT_CHECK_H_

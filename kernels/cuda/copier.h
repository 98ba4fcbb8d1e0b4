// Copier: makes many copies within a GPU's memory in one launch of a kernel of ours, and converts elements on
// the way.
//
// Place in the stack: above device_code.h.
#ifndef TF_SMDDP_KERNELS_CUDA_COPIER_H_
#define TF_SMDDP_KERNELS_CUDA_COPIER_H_

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "kernels/common/status.h"
#include "kernels/cuda/device_code.h"
#include "kernels/cuda/driver.h"

namespace tf_smddp::cuda {

// How a copy converts elements. An element without an exact value is rounded to nearest even.
enum class Conversion {
  kNone,
  kFloat32ToFloat16,
  kFloat16ToFloat32,
  kFloat32ToBFloat16,
  kBFloat16ToFloat32,
};
constexpr int kNumConversions = 5;

struct Copy {
  void* to;
  const void* from;
  std::uint64_t count;  // of elements; of bytes, if they are not converted
  Conversion conversion = Conversion::kNone;
};

// All methods: any thread.
class Copier {
 public:
  // Errors: Internal (tf_smddp was built without device code, or what the driver says).
  static Status Open(const Driver* driver, Context context, std::unique_ptr<Copier>* opened);

  // Puts the copies on `stream`, a stream of the context, which is current. They run beside each other, so
  // none may read what another writes. Errors: Internal, what the driver says.
  Status Put(const std::vector<Copy>& copies, Stream stream) const;

 private:
  Copier() = default;

  Status PutAlike(Conversion conversion, const std::vector<Copy>& copies, Stream stream) const;

  std::unique_ptr<DeviceCode> code_;
  std::array<Function, kNumConversions> kernels_ = {};
};

}  // namespace tf_smddp::cuda

#endif  // TF_SMDDP_KERNELS_CUDA_COPIER_H_

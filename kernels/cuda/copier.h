// Copier: makes many copies within a GPU's memory in one launch of a kernel of ours, and converts elements on
// the way.
//
// Place in the stack: above driver.h. The kernels (copies.cu) are compiled into PTX when tf_smddp is built.
// The driver compiles that for the GPU at hand when a Copier is opened, and keeps the result in a cache of
// its own.
#ifndef TF_SMDDP_KERNELS_CUDA_COPIER_H_
#define TF_SMDDP_KERNELS_CUDA_COPIER_H_

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "kernels/common/status.h"
#include "kernels/cuda/driver.h"

namespace tf_smddp::cuda {

// What happens to the elements of a copy. Those that have no exact value are rounded to nearest even.
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
  ~Copier();
  Copier(const Copier&) = delete;
  Copier& operator=(const Copier&) = delete;

  // Puts the copies on `stream`, a stream of the context, which is current. They run beside each other, so
  // none may read what another writes. Errors: Internal, what the driver says.
  Status Put(const std::vector<Copy>& copies, Stream stream) const;

 private:
  Copier(const Driver* driver, Context context) : driver_(driver), context_(context) {}

  Status PutAlike(Conversion conversion, const std::vector<Copy>& copies, Stream stream) const;

  const Driver* const driver_;
  const Context context_;
  Module module_ = nullptr;
  std::array<Function, kNumConversions> kernels_ = {};
};

}  // namespace tf_smddp::cuda

#endif  // TF_SMDDP_KERNELS_CUDA_COPIER_H_

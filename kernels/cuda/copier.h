// Copier: makes many copies within a GPU's memory in one launch of a kernel of ours.
//
// Place in the stack: above driver.h. The kernel (copies.cu) is compiled into PTX when tf_smddp is built. The
// driver compiles that for the GPU at hand when a Copier is opened, and keeps the result in a cache of its
// own.
#ifndef TF_SMDDP_KERNELS_CUDA_COPIER_H_
#define TF_SMDDP_KERNELS_CUDA_COPIER_H_

#include <memory>
#include <vector>

#include "kernels/common/status.h"
#include "kernels/cuda/copy_table.h"
#include "kernels/cuda/driver.h"

namespace tf_smddp::cuda {

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

  const Driver* const driver_;
  const Context context_;
  Module module_ = nullptr;
  Function kernel_ = nullptr;
};

}  // namespace tf_smddp::cuda

#endif  // TF_SMDDP_KERNELS_CUDA_COPIER_H_

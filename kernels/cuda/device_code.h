// DeviceCode: kernels of ours, compiled by the driver.
//
// Place in the stack: above driver.h. The kernels are compiled into PTX when tf_smddp is built. The driver
// compiles that for the GPU at hand when it is loaded, and keeps the result in a cache of its own.
#ifndef TF_SMDDP_KERNELS_CUDA_DEVICE_CODE_H_
#define TF_SMDDP_KERNELS_CUDA_DEVICE_CODE_H_

#include <memory>

#include "kernels/common/status.h"
#include "kernels/cuda/driver.h"

namespace tf_smddp::cuda {

// All methods: any thread.
class DeviceCode {
 public:
  // Errors: Internal (`ptx` is "": tf_smddp was built without device code; or what the driver says).
  static Status Load(const Driver* driver, Context context, const char* ptx,
                     std::unique_ptr<DeviceCode>* loaded);
  ~DeviceCode();
  DeviceCode(const DeviceCode&) = delete;
  DeviceCode& operator=(const DeviceCode&) = delete;

  // Errors: Internal, what the driver says.
  Status Find(const char* kernel, Function* function) const;

  // Puts `rows` times `tiles` blocks of a kernel on `stream`, a stream of the context, which is current.
  // `table` is the kernel's one argument. Errors: Internal, or DeviceLost, what the driver says.
  Status Launch(Function kernel, unsigned tiles, unsigned rows, unsigned threads, void* table,
                Stream stream) const;

 private:
  DeviceCode(const Driver* driver, Context context) : driver_(driver), context_(context) {}

  const Driver* const driver_;
  const Context context_;
  Module module_ = nullptr;
};

}  // namespace tf_smddp::cuda

#endif  // TF_SMDDP_KERNELS_CUDA_DEVICE_CODE_H_

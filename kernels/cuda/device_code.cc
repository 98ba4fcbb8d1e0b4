#include "kernels/cuda/device_code.h"

#include <utility>

namespace tf_smddp::cuda {

Status DeviceCode::Load(const Driver* driver, Context context, const char* ptx,
                        std::unique_ptr<DeviceCode>* loaded) {
  if (ptx[0] == '\0') {
    return Internal(
        "tf_smddp was built without device code, since NVRTC could not be fetched from PyPI; install it "
        "again where pip can download nvidia-cuda-nvrtc-cu12");
  }
  const CurrentContext current(driver, context);
  std::unique_ptr<DeviceCode> code(new DeviceCode(driver, context));
  const Status status = driver->Check("cuModuleLoadData", driver->ModuleLoadData(&code->module_, ptx));
  if (status.ok()) *loaded = std::move(code);
  return status;
}

DeviceCode::~DeviceCode() {
  if (module_ == nullptr) return;
  const CurrentContext current(driver_, context_);
  static_cast<void>(driver_->ModuleUnload(module_));  // nothing is lost if it fails
}

Status DeviceCode::Find(const char* kernel, Function* function) const {
  const CurrentContext current(driver_, context_);
  return driver_->Check("cuModuleGetFunction", driver_->ModuleGetFunction(function, module_, kernel));
}

Status DeviceCode::Launch(Function kernel, unsigned tiles, unsigned rows, unsigned threads, void* table,
                          Stream stream) const {
  void* arguments[] = {table};
  return driver_->Check("cuLaunchKernel", driver_->LaunchKernel(kernel, tiles, rows, 1, threads, 1, 1, 0,
                                                                stream, arguments, nullptr));
}

}  // namespace tf_smddp::cuda

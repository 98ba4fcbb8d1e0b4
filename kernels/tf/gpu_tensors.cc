#include "kernels/tf/gpu_tensors.h"

#include <utility>

#include "kernels/cuda/driver.h"
#include "kernels/tf/tensorflow_private.h"

namespace tf_smddp {

Status GpuTensors::Of(tensorflow::OpKernelContext* context, std::shared_ptr<GpuTensors>* tensors) {
  tensors->reset();
  void* const stream = ComputeStream(context);
  if (stream == nullptr) return {};
  return On(stream, tensors);
}

Status GpuTensors::On(void* stream, std::shared_ptr<GpuTensors>* tensors) {
  std::shared_ptr<GpuTensors> found(new GpuTensors);
  found->order_.compute = static_cast<cuda::Stream>(stream);
  Status status = cuda::Device::Of(found->order_.compute, &found->device_);
  if (status.ok()) *tensors = std::move(found);
  return status;
}

bool HasGpuKernels() {
  Status status;
  return cuda::Driver::Get(&status) != nullptr;
}

void RegisterOnGpu(const char* op, std::initializer_list<const char*> host_memory, const char* kernel_name,
                   tensorflow::OpKernel* (*create)(tensorflow::OpKernelConstruction*)) {
  if (!HasGpuKernels()) return;
  tensorflow::KernelDefBuilder builder(op);
  builder.Device(tensorflow::DEVICE_GPU);
  for (const char* argument : host_memory) builder.HostMemory(argument);
  // As REGISTER_KERNEL_BUILDER does, whose conditions are the compiler's.
  static_cast<void>(tensorflow::kernel_factory::OpKernelRegistrar(builder.Build(), kernel_name, create));
}

}  // namespace tf_smddp

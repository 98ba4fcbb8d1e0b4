#include "kernels/tf/gpu_tensors.h"

#include <mutex>
#include <string>
#include <utility>

#include "kernels/common/logging.h"
#include "kernels/cuda/driver.h"
#include "kernels/tf/conversions.h"
#include "kernels/tf/tensorflow_private.h"

namespace tf_smddp {
namespace {

void LogWay(const Config& config, const std::string& device) {
  if (config.size == 1) return;
  const Logger logger(static_cast<LogLevel>(config.log_level), config.rank);
  logger.Log(config.rank == 0 ? LogLevel::kWarning : LogLevel::kInfo,  // one line for the job
             "tensors of " + device +
                 " are copied to the host's memory and reduced there; this version does not use NCCL");
}

}  // namespace

absl::Status GpuTensors::Of(tensorflow::OpKernelContext* context, const Config& config,
                            std::shared_ptr<GpuTensors>* tensors) {
  tensors->reset();
  void* const stream = ComputeStream(context);
  if (stream == nullptr) return absl::OkStatus();
  std::shared_ptr<GpuTensors> found(new GpuTensors);
  found->order_.compute = static_cast<cuda::Stream>(stream);
  const Status status = cuda::Device::Of(found->order_.compute, &found->device_);
  if (!status.ok()) return ToTensorFlow(status);
  static std::once_flag logged;
  std::call_once(logged, LogWay, config, found->device_->name());
  *tensors = std::move(found);
  return absl::OkStatus();
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

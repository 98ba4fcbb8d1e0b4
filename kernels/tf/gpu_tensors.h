// GpuTensors: the tensors of one execution of an op on a GPU, and what is known of the streams there.
//
// Place in the stack: above kernels/cuda; under collective_kernel.h, which puts buffers into requests, and
// submission.h, which ends the op when its results are in the device's memory.
#ifndef TF_SMDDP_KERNELS_TF_GPU_TENSORS_H_
#define TF_SMDDP_KERNELS_TF_GPU_TENSORS_H_

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>

#include "kernels/common/status.h"
#include "kernels/cuda/device.h"
#include "kernels/memory/buffer.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace tf_smddp {

class GpuTensors {
 public:
  // Sets *tensors to nullptr for an op on the CPU. Errors: Internal or DeviceLost, what the driver says.
  static Status Of(tensorflow::OpKernelContext* context, std::shared_ptr<GpuTensors>* tensors);

  // For computation on `stream` (CUstream), such as a program of XLA's. Errors: likewise.
  static Status On(void* stream, std::shared_ptr<GpuTensors>* tensors);

  // Work on our streams from now on waits for what TensorFlow has put on its stream until now: the
  // computation of the inputs, and what used the outputs' memory before. Call it when the tensors have been
  // allocated.
  Status Mark() { return device_->Mark(&order_); }

  // A buffer in the device's memory. It refers to this object, which must outlive its use.
  InputBuffer Input(const void* data) { return {data, device_, &order_}; }
  Buffer Output(void* data) { return {data, device_, &order_}; }

  // Puts a copy of `bytes` bytes on the stream on which TensorFlow computes.
  Status CopyInOrder(const void* from, void* to, std::uint64_t bytes) {
    return device_->CopyInOrder(order_.compute, from, to, bytes);
  }

  // Calls `written` when the results are in the device's memory. To be called once, when all requests have
  // ended. Any thread may call `written`.
  void WhenWritten(std::function<void(const Status&)> written) {
    order_.writes->WhenEnded(std::move(written));
  }

 private:
  GpuTensors() = default;

  cuda::Device* device_ = nullptr;
  cuda::Order order_;
};

// Whether there are kernels for GPUs: if this machine has a driver for them. Any thread.
bool HasGpuKernels();

// Registers a kernel for GPUs, if there are kernels for them. `host_memory`: the arguments of the op that the
// kernel reads on the host.
void RegisterOnGpu(const char* op, std::initializer_list<const char*> host_memory, const char* kernel_name,
                   tensorflow::OpKernel* (*create)(tensorflow::OpKernelConstruction*));

// TF_SMDDP_REGISTER_ON_GPU(AllreduceKernel, "SmddpAllreduce", "ticket", "factors");
#define TF_SMDDP_REGISTER_ON_GPU(Kernel, op, ...) \
  TF_SMDDP_REGISTER_ON_GPU_UNIQUE(__COUNTER__, Kernel, op, __VA_ARGS__)
#define TF_SMDDP_REGISTER_ON_GPU_UNIQUE(number, Kernel, op, ...) \
  TF_SMDDP_REGISTER_ON_GPU_NAMED(number, Kernel, op, __VA_ARGS__)
#define TF_SMDDP_REGISTER_ON_GPU_NAMED(number, Kernel, op, ...)                            \
  [[maybe_unused]] const bool registered_on_gpu_##number = [] {                            \
    RegisterOnGpu(op, {__VA_ARGS__}, #Kernel,                                              \
                  [](tensorflow::OpKernelConstruction* context) -> tensorflow::OpKernel* { \
                    return new Kernel(context);                                            \
                  });                                                                      \
    return true;                                                                           \
  }()

}  // namespace tf_smddp

#endif  // TF_SMDDP_KERNELS_TF_GPU_TENSORS_H_

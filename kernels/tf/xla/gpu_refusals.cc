// The kernels for functions that XLA compiles for a GPU: there are none yet, and this is what says so.
// Without them TensorFlow's error would not name a way out.
#include <string>

#include "tensorflow/core/framework/op_kernel.h"

namespace tf_smddp {
namespace {

class GpuRefusal : public tensorflow::OpKernel {
 public:
  using OpKernel::OpKernel;

  void Compute(tensorflow::OpKernelContext* context) override {
    context->SetStatus(absl::UnimplementedError(
        std::string(type_string()) + " '" + name() +
        "' cannot be compiled by XLA for a GPU in this version of tf_smddp. Compile the function, or the "
        "Keras model, with jit_compile=False"));
  }
};

REGISTER_KERNEL_BUILDER(Name("SmddpTicket").Device("XLA_GPU_JIT"), GpuRefusal);
REGISTER_KERNEL_BUILDER(Name("SmddpStepMark").Device("XLA_GPU_JIT"), GpuRefusal);
REGISTER_KERNEL_BUILDER(Name("SmddpChain").Device("XLA_GPU_JIT"), GpuRefusal);
REGISTER_KERNEL_BUILDER(Name("SmddpAllreduce").Device("XLA_GPU_JIT"), GpuRefusal);
REGISTER_KERNEL_BUILDER(Name("SmddpGroupedAllreduce").Device("XLA_GPU_JIT"), GpuRefusal);
REGISTER_KERNEL_BUILDER(Name("SmddpOobAllreduce").Device("XLA_GPU_JIT"), GpuRefusal);
REGISTER_KERNEL_BUILDER(Name("SmddpAllgather").Device("XLA_GPU_JIT"), GpuRefusal);
REGISTER_KERNEL_BUILDER(Name("SmddpGroupedAllgather").Device("XLA_GPU_JIT"), GpuRefusal);
REGISTER_KERNEL_BUILDER(Name("SmddpReducescatter").Device("XLA_GPU_JIT"), GpuRefusal);
REGISTER_KERNEL_BUILDER(Name("SmddpGroupedReducescatter").Device("XLA_GPU_JIT"), GpuRefusal);
REGISTER_KERNEL_BUILDER(Name("SmddpAlltoall").Device("XLA_GPU_JIT"), GpuRefusal);
REGISTER_KERNEL_BUILDER(Name("SmddpBroadcast").Device("XLA_GPU_JIT"), GpuRefusal);
REGISTER_KERNEL_BUILDER(Name("SmddpBarrier").Device("XLA_GPU_JIT"), GpuRefusal);

}  // namespace
}  // namespace tf_smddp

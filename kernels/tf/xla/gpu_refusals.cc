// The kernels for functions that XLA compiles for a GPU. This version cannot compile collectives there: each
// kernel fails with an error that names the remedy, which TensorFlow's own error for a missing kernel would
// not.
#include <string>

#include "kernels/common/collective_info.h"
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

void RegisterRefusal(const char* op) {
  // As REGISTER_KERNEL_BUILDER does, which takes no name from a table.
  static_cast<void>(tensorflow::kernel_factory::OpKernelRegistrar(
      tensorflow::register_kernel::Name(op).Device("XLA_GPU_JIT").Build(), "GpuRefusal",
      [](tensorflow::OpKernelConstruction* context) -> tensorflow::OpKernel* {
        return new GpuRefusal(context);
      }));
}

const bool registered = [] {
  for (const char* op : {"SmddpTicket", "SmddpStepMark", "SmddpChain"}) RegisterRefusal(op);
  for (const CollectiveInfo& collective : kCollectives) {
    for (const char* op : collective.ops) {
      if (op != nullptr) RegisterRefusal(op);
    }
  }
  return true;
}();

}  // namespace
}  // namespace tf_smddp

// The kernel of SmddpChain outside of XLA: a function that was traced in a compiled one may be called
// elsewhere, too, where nothing looks at the chain.
#include "kernels/tf/gpu_tensors.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/resource_handle.h"

namespace tf_smddp {
namespace {

class ChainKernel : public tensorflow::OpKernel {
 public:
  using OpKernel::OpKernel;

  void Compute(tensorflow::OpKernelContext* context) override {
    tensorflow::Tensor* chain = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(0, {}, &chain));
    chain->scalar<tensorflow::ResourceHandle>()() = tensorflow::ResourceHandle();
  }
  bool IsExpensive() override { return false; }
};

REGISTER_KERNEL_BUILDER(Name("SmddpChain").Device(tensorflow::DEVICE_CPU), ChainKernel);
TF_SMDDP_REGISTER_ON_GPU(ChainKernel, "SmddpChain", "chain");

}  // namespace
}  // namespace tf_smddp

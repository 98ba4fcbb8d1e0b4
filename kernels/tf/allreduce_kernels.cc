// The kernels of SmddpAllreduce, SmddpGroupedAllreduce and SmddpOobAllreduce. A result may take the place
// of its input.
#include <vector>

#include "kernels/tf/collective_kernel.h"

namespace tf_smddp {
namespace {

using ::tensorflow::OpKernelConstruction;
using ::tensorflow::OpKernelContext;

class AllreduceKernel : public CollectiveKernel {
 public:
  // An allreduce without a ticket is out of band.
  explicit AllreduceKernel(OpKernelConstruction* context)
      : CollectiveKernel(context, CollectiveKind::kAllreduce, context->num_outputs(), Pairing::kOutOfBand) {}

 protected:
  absl::Status FillIn(OpKernelContext* context, GpuTensors* gpu, std::vector<Request>* requests) override {
    return ForwardOutputs(context, gpu, requests);
  }
};

REGISTER_KERNEL_BUILDER(Name("SmddpAllreduce").Device(tensorflow::DEVICE_CPU), AllreduceKernel);
REGISTER_KERNEL_BUILDER(Name("SmddpGroupedAllreduce").Device(tensorflow::DEVICE_CPU), AllreduceKernel);
REGISTER_KERNEL_BUILDER(Name("SmddpOobAllreduce").Device(tensorflow::DEVICE_CPU), AllreduceKernel);
TF_SMDDP_REGISTER_ON_GPU(AllreduceKernel, "SmddpAllreduce", "ticket", "factors", "labels");
TF_SMDDP_REGISTER_ON_GPU(AllreduceKernel, "SmddpGroupedAllreduce", "ticket", "factors", "labels");
TF_SMDDP_REGISTER_ON_GPU(AllreduceKernel, "SmddpOobAllreduce", "labels");

}  // namespace
}  // namespace tf_smddp

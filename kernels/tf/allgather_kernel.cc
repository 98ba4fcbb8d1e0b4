// The kernel of SmddpAllgather. The number of rows of an output is known only when all ranks have met.
#include <vector>

#include "kernels/tf/collective_kernel.h"

namespace tf_smddp {
namespace {

using ::tensorflow::OpKernelConstruction;
using ::tensorflow::OpKernelContext;

class AllgatherKernel : public CollectiveKernel {
 public:
  explicit AllgatherKernel(OpKernelConstruction* context)
      : CollectiveKernel(context, CollectiveKind::kAllgather, context->num_outputs()) {}

 protected:
  absl::Status FillIn(OpKernelContext* context, GpuTensors* gpu, std::vector<Request>* requests) override {
    AllocateOutputsLater(context, gpu, requests);
    return absl::OkStatus();
  }
};

REGISTER_KERNEL_BUILDER(Name("SmddpAllgather").Device(tensorflow::DEVICE_CPU), AllgatherKernel);
TF_SMDDP_REGISTER_ON_GPU(AllgatherKernel, "SmddpAllgather", "ticket", "labels");

}  // namespace
}  // namespace tf_smddp

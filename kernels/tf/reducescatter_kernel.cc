// The kernel of SmddpReducescatter. The number of rows of an output is known only when all ranks have
// met.
#include <vector>

#include "kernels/tf/collective_kernel.h"

namespace tf_smddp {
namespace {

using ::tensorflow::OpKernelConstruction;
using ::tensorflow::OpKernelContext;

class ReducescatterKernel : public CollectiveKernel {
 public:
  explicit ReducescatterKernel(OpKernelConstruction* context)
      : CollectiveKernel(context, CollectiveKind::kReducescatter, context->num_outputs()) {}

 protected:
  absl::Status FillIn(OpKernelContext* context, GpuTensors* gpu, std::vector<Request>* requests) override {
    AllocateOutputsLater(context, gpu, requests);
    return absl::OkStatus();
  }
};

REGISTER_KERNEL_BUILDER(Name("SmddpReducescatter").Device(tensorflow::DEVICE_CPU), ReducescatterKernel);
TF_SMDDP_REGISTER_ON_GPU(ReducescatterKernel, "SmddpReducescatter", "ticket", "factors", "labels");

}  // namespace
}  // namespace tf_smddp

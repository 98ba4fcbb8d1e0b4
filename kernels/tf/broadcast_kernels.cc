// The kernels of SmddpBroadcast and SmddpBarrier, which share the sequence of collectives outside groups.
#include <vector>

#include "kernels/tf/collective_kernel.h"

namespace tf_smddp {
namespace {

using ::tensorflow::OpKernelConstruction;
using ::tensorflow::OpKernelContext;

class BroadcastKernel : public CollectiveKernel {
 public:
  explicit BroadcastKernel(OpKernelConstruction* context)
      : CollectiveKernel(context, CollectiveKind::kBroadcast, 1) {}

 protected:
  absl::Status FillIn(OpKernelContext* context, GpuTensors* gpu, std::vector<Request>* requests) override {
    return ForwardOutputs(context, gpu, requests);
  }
};

class BarrierKernel : public CollectiveKernel {
 public:
  explicit BarrierKernel(OpKernelConstruction* context)
      : CollectiveKernel(context, CollectiveKind::kBarrier, 0) {}

 protected:
  absl::Status FillIn(OpKernelContext*, GpuTensors*, std::vector<Request>*) override {
    return absl::OkStatus();
  }
};

REGISTER_KERNEL_BUILDER(Name("SmddpBroadcast").Device(tensorflow::DEVICE_CPU), BroadcastKernel);
REGISTER_KERNEL_BUILDER(Name("SmddpBarrier").Device(tensorflow::DEVICE_CPU), BarrierKernel);
TF_SMDDP_REGISTER_ON_GPU(BroadcastKernel, "SmddpBroadcast", "labels");
TF_SMDDP_REGISTER_ON_GPU(BarrierKernel, "SmddpBarrier", "labels");

}  // namespace
}  // namespace tf_smddp

// The kernel of SmddpAlltoall, which sends some of the rows to each rank of the communicator.
#include <string>
#include <vector>

#include "kernels/process/global_engine.h"
#include "kernels/tf/collective_kernel.h"

namespace tf_smddp {
namespace {

using ::tensorflow::OpKernelConstruction;
using ::tensorflow::OpKernelContext;
using ::tensorflow::Tensor;

class AlltoallKernel : public CollectiveKernel {
 public:
  explicit AlltoallKernel(OpKernelConstruction* context)
      : CollectiveKernel(context, CollectiveKind::kAlltoall, 1) {}

 protected:
  absl::Status FillIn(OpKernelContext* context, GpuTensors* gpu, std::vector<Request>* requests) override {
    Request& request = (*requests)[0];
    const Tensor& splits = context->input(1);
    if (splits.dims() != 1) {
      return absl::InvalidArgumentError("splits has the shape " + splits.shape().DebugString() +
                                        "; it must be a vector with one number of rows for each rank");
    }
    const auto values = splits.flat<std::int64_t>();
    request.splits.assign(values.data(), values.data() + values.size());
    if (request.splits.empty()) TF_RETURN_IF_ERROR(SplitEvenly(&request));
    AllocateOutputsLater(context, gpu, requests, 1);
    return absl::OkStatus();
  }

 private:
  static absl::Status SplitEvenly(Request* request) {
    if (request->shape.empty()) return absl::OkStatus();  // the engine says what is wrong
    const std::shared_ptr<Engine> engine = GlobalEngine();
    const auto ranks =
        engine == nullptr ? 0 : static_cast<std::int64_t>(engine->RanksOf(request->communicator).size());
    if (ranks == 0) return absl::OkStatus();  // likewise
    const std::int64_t rows = request->shape[0];
    if (rows % ranks != 0) {
      return absl::InvalidArgumentError("alltoall of " + std::to_string(rows) + " rows over " +
                                        std::to_string(ranks) +
                                        " ranks without splits: they do not divide evenly; give splits");
    }
    request->splits.assign(static_cast<std::size_t>(ranks), rows / ranks);
    return absl::OkStatus();
  }
};

REGISTER_KERNEL_BUILDER(Name("SmddpAlltoall").Device(tensorflow::DEVICE_CPU), AlltoallKernel);
TF_SMDDP_REGISTER_ON_GPU(AlltoallKernel, "SmddpAlltoall", "splits", "ticket", "labels", "received_splits");

}  // namespace
}  // namespace tf_smddp

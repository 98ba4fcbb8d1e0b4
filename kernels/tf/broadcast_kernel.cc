// The CPU kernels of SmddpBroadcast and SmddpBarrier, which share the sequence of collectives outside groups.
#include <string>
#include <utility>
#include <vector>

#include "kernels/tf/submission.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace tf_smddp {
namespace {

using ::tensorflow::AsyncOpKernel;
using ::tensorflow::OpKernelConstruction;
using ::tensorflow::OpKernelContext;
using ::tensorflow::Tensor;

// What both have: a name, and how they pair.
class SequencedKernel : public AsyncOpKernel {
 public:
  explicit SequencedKernel(OpKernelConstruction* context) : AsyncOpKernel(context) {
    bool pair_by_name = false;
    OP_REQUIRES_OK(context, context->GetAttr("tensor_name", &tensor_name_));
    OP_REQUIRES_OK(context, context->GetAttr("pair_by_name", &pair_by_name));
    if (tensor_name_.empty()) tensor_name_ = name();
    pairing_.kind = pair_by_name ? Pairing::kName : Pairing::kSequence;
    if (pair_by_name) pairing_.name = tensor_name_;
  }

 protected:
  // `input` and `output` may be nullptr: no data.
  void Submit(OpKernelContext* context, CollectiveKind kind, int root, const Tensor* input, Tensor* output,
              DoneCallback done) const {
    Request request;
    request.kind = kind;
    request.root = root;
    request.pairing = pairing_;
    OP_REQUIRES_OK_ASYNC(context, DescribeTensors(input, output, tensor_name_, &request), done);
    std::vector<Request> requests;
    requests.push_back(std::move(request));
    SubmitAsync(context, std::move(requests), std::move(done));
  }

 private:
  std::string tensor_name_;
  Pairing pairing_;
};

class BroadcastKernel : public SequencedKernel {
 public:
  explicit BroadcastKernel(OpKernelConstruction* context) : SequencedKernel(context) {
    OP_REQUIRES_OK(context, context->GetAttr("root_rank", &root_rank_));
  }

  void ComputeAsync(OpKernelContext* context, DoneCallback done) override {
    Tensor* output = nullptr;
    OP_REQUIRES_OK_ASYNC(
        context, context->forward_input_or_allocate_output({0}, 0, context->input(0).shape(), &output), done);
    Submit(context, CollectiveKind::kBroadcast, root_rank_, &context->input(0), output, std::move(done));
  }

 private:
  int root_rank_ = 0;
};

class BarrierKernel : public SequencedKernel {
 public:
  using SequencedKernel::SequencedKernel;

  void ComputeAsync(OpKernelContext* context, DoneCallback done) override {
    Submit(context, CollectiveKind::kBarrier, -1, nullptr, nullptr, std::move(done));
  }
};

REGISTER_KERNEL_BUILDER(Name("SmddpBroadcast").Device(tensorflow::DEVICE_CPU), BroadcastKernel);
REGISTER_KERNEL_BUILDER(Name("SmddpBarrier").Device(tensorflow::DEVICE_CPU), BarrierKernel);

}  // namespace
}  // namespace tf_smddp

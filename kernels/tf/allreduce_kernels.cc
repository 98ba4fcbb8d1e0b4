// The CPU kernels of SmddpAllreduce and SmddpGroupedAllreduce: they describe the tensors and submit.
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

absl::Status ReadReduceOp(OpKernelConstruction* context, ReduceOp* op) {
  std::string name;
  TF_RETURN_IF_ERROR(context->GetAttr("reduce_op", &name));
  if (ParseReduceOp(name.c_str(), op)) return absl::OkStatus();
  return absl::InvalidArgumentError("reduce_op '" + name + "' is not one of sum, average, min, max, product");
}

// By ticket where the graph draws one, else (-1) by name.
Pairing MakePairing(std::int64_t ticket, int param_index, int num_params, const std::string& name) {
  Pairing pairing;
  pairing.kind = ticket >= 0 ? Pairing::kGroup : Pairing::kName;
  pairing.param_index = static_cast<std::uint32_t>(param_index);
  pairing.num_params = static_cast<std::uint32_t>(num_params);
  if (ticket >= 0) {
    pairing.ticket = static_cast<std::uint64_t>(ticket);
  } else {
    pairing.name = name;
  }
  return pairing;
}

class AllreduceKernel : public AsyncOpKernel {
 public:
  explicit AllreduceKernel(OpKernelConstruction* context) : AsyncOpKernel(context) {
    OP_REQUIRES_OK(context, ReadReduceOp(context, &op_));
    OP_REQUIRES_OK(context, context->GetAttr("param_index", &param_index_));
    OP_REQUIRES_OK(context, context->GetAttr("num_params", &num_params_));
    OP_REQUIRES_OK(context, context->GetAttr("tensor_name", &tensor_name_));
    if (tensor_name_.empty()) tensor_name_ = name();
  }

  void ComputeAsync(OpKernelContext* context, DoneCallback done) override {
    Tensor* output = nullptr;
    OP_REQUIRES_OK_ASYNC(
        context, context->forward_input_or_allocate_output({0}, 0, context->input(0).shape(), &output), done);
    Request request;
    request.kind = CollectiveKind::kAllreduce;
    request.op = op_;
    OP_REQUIRES_OK_ASYNC(context, DescribeTensors(&context->input(0), output, tensor_name_, &request), done);
    request.pairing =
        MakePairing(context->input(1).scalar<std::int64_t>()(), param_index_, num_params_, tensor_name_);
    std::vector<Request> requests;
    requests.push_back(std::move(request));
    SubmitAsync(context, std::move(requests), std::move(done));
  }

 private:
  ReduceOp op_ = ReduceOp::kSum;
  int param_index_ = 0;
  int num_params_ = 1;
  std::string tensor_name_;
};

class GroupedAllreduceKernel : public AsyncOpKernel {
 public:
  explicit GroupedAllreduceKernel(OpKernelConstruction* context) : AsyncOpKernel(context) {
    OP_REQUIRES_OK(context, ReadReduceOp(context, &op_));
    OP_REQUIRES_OK(context, context->GetAttr("tensor_names", &tensor_names_));
    const auto tensors = static_cast<std::size_t>(context->num_outputs());
    OP_REQUIRES(context, tensor_names_.empty() || tensor_names_.size() == tensors,
                absl::InvalidArgumentError("tensor_names has " + std::to_string(tensor_names_.size()) +
                                           " names for " + std::to_string(tensors) +
                                           " tensors; give one each, or none"));
    for (std::size_t i = tensor_names_.size(); i < tensors; ++i) {
      tensor_names_.push_back(name() + "/" + std::to_string(i));
    }
  }

  void ComputeAsync(OpKernelContext* context, DoneCallback done) override {
    const int tensors = context->num_outputs();
    const std::int64_t ticket = context->input(tensors).scalar<std::int64_t>()();
    std::vector<Request> requests;
    for (int i = 0; i < tensors; ++i) {
      Tensor* output = nullptr;
      OP_REQUIRES_OK_ASYNC(
          context, context->forward_input_or_allocate_output({i}, i, context->input(i).shape(), &output),
          done);
      Request request;
      request.kind = CollectiveKind::kAllreduce;
      request.op = op_;
      OP_REQUIRES_OK_ASYNC(context, DescribeTensors(&context->input(i), output, tensor_names_[i], &request),
                           done);
      request.pairing = MakePairing(ticket, i, tensors, tensor_names_[i]);
      requests.push_back(std::move(request));
    }
    SubmitAsync(context, std::move(requests), std::move(done));
  }

 private:
  ReduceOp op_ = ReduceOp::kSum;
  std::vector<std::string> tensor_names_;
};

REGISTER_KERNEL_BUILDER(Name("SmddpAllreduce").Device(tensorflow::DEVICE_CPU), AllreduceKernel);
REGISTER_KERNEL_BUILDER(Name("SmddpGroupedAllreduce").Device(tensorflow::DEVICE_CPU), GroupedAllreduceKernel);

}  // namespace
}  // namespace tf_smddp

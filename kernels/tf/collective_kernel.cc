#include "kernels/tf/collective_kernel.h"

#include <algorithm>
#include <memory>
#include <numeric>
#include <utility>

#include "kernels/engine/engine.h"
#include "kernels/tf/conversions.h"
#include "kernels/tf/global_engine.h"
#include "kernels/tf/step.h"
#include "kernels/tf/submission.h"
#include "tensorflow/core/framework/tensor_shape.h"

namespace tf_smddp {

using ::tensorflow::OpKernelConstruction;
using ::tensorflow::OpKernelContext;
using ::tensorflow::Tensor;
using ::tensorflow::TensorShape;

CollectiveKernel::CollectiveKernel(OpKernelConstruction* context, CollectiveKind kind, int tensors,
                                   Pairing::Kind sequence)
    : AsyncOpKernel(context), kind_(kind), tensors_(tensors) {
  OP_REQUIRES_OK(context, ReadAttributes(context, sequence));
}

absl::Status CollectiveKernel::ReadAttributes(OpKernelConstruction* context, Pairing::Kind sequence) {
  has_ticket_ = context->num_inputs() > tensors_;
  int communicator = 0;
  TF_RETURN_IF_ERROR(context->GetAttr("communicator", &communicator));
  communicator_ = static_cast<CommunicatorId>(communicator);
  TF_RETURN_IF_ERROR(context->GetAttr("eager", &eager_));
  if (IsReduction(kind_)) {
    std::string op;
    TF_RETURN_IF_ERROR(context->GetAttr("reduce_op", &op));
    if (!ParseReduceOp(op.c_str(), &op_)) {
      return absl::InvalidArgumentError("reduce_op '" + op +
                                        "' is not one of sum, average, min, max, product");
    }
    float prescale = 1.0F;
    float postscale = 1.0F;
    TF_RETURN_IF_ERROR(context->GetAttr("prescale", &prescale));
    TF_RETURN_IF_ERROR(context->GetAttr("postscale", &postscale));
    prescale_ = prescale;
    postscale_ = postscale;
  }
  pairing_.num_params = static_cast<std::uint32_t>(std::max(tensors_, 1));
  if (context->HasAttr("num_params")) {
    int param_index = 0;
    int num_params = 1;
    TF_RETURN_IF_ERROR(context->GetAttr("param_index", &param_index));
    TF_RETURN_IF_ERROR(context->GetAttr("num_params", &num_params));
    pairing_.param_index = static_cast<std::uint32_t>(param_index);
    pairing_.num_params = static_cast<std::uint32_t>(num_params);
  }
  if (!has_ticket_) {
    bool by_name = false;
    TF_RETURN_IF_ERROR(context->GetAttr("pair_by_name", &by_name));
    pairing_.kind = by_name ? Pairing::kName : sequence;
  }
  if (context->HasAttr("tensor_name")) {
    labels_.resize(1);
    TF_RETURN_IF_ERROR(context->GetAttr("tensor_name", labels_.data()));
    if (labels_[0].empty()) labels_[0] = name();
    return absl::OkStatus();
  }
  const auto tensors = static_cast<std::size_t>(tensors_);
  TF_RETURN_IF_ERROR(context->GetAttr("tensor_names", &labels_));
  if (!labels_.empty() && labels_.size() != tensors) {
    return absl::InvalidArgumentError("tensor_names has " + std::to_string(labels_.size()) + " names for " +
                                      std::to_string(tensors) + " tensors; give one each, or none");
  }
  labels_.resize(tensors);
  for (std::size_t i = 0; i < tensors; ++i) {
    if (labels_[i].empty()) labels_[i] = name() + "/" + std::to_string(i);
  }
  return absl::OkStatus();
}

void CollectiveKernel::ComputeAsync(OpKernelContext* context, DoneCallback done) {
  std::shared_ptr<Engine> engine = GlobalEngine();
  OP_REQUIRES_ASYNC(context, engine != nullptr, ToTensorFlow(NotInitialized()), done);
  const std::shared_ptr<Step> step = Step::Of(context, engine, eager_);
  std::vector<Request> requests;
  absl::Status status = MakeRequests(context, step->number(), &requests);
  if (status.ok()) status = FillIn(context, &requests);
  if (!status.ok()) {
    // The other ranks run this op, and would wait for us.
    engine->FailStep(communicator_, step->number(),
                     "rank " + std::to_string(engine->config().rank) + " could not run " +
                         CollectiveKindName(kind_) + " '" + labels_[0] +
                         "': " + std::string(status.message()));
    step->FailedIn(communicator_);
    context->SetStatus(status);
    done();
    return;
  }
  SubmitAsync(context, engine, step, eager_, std::move(requests), std::move(done));
}

// By ticket where the graph draws one, else by name.
absl::Status CollectiveKernel::ReadTicket(OpKernelContext* context, Pairing* pairing) const {
  if (!has_ticket_) return absl::OkStatus();
  const Tensor& tensor = context->input(context->num_inputs() - 1);
  if (tensor.NumElements() != 1) {
    return absl::InvalidArgumentError("the ticket has the shape " + tensor.shape().DebugString() +
                                      "; it must be one number");
  }
  const std::int64_t ticket = tensor.flat<std::int64_t>()(0);
  pairing->kind = ticket >= 0 ? Pairing::kGroup : Pairing::kName;
  if (ticket >= 0) pairing->ticket = static_cast<std::uint64_t>(ticket);
  return absl::OkStatus();
}

absl::Status CollectiveKernel::MakeRequests(OpKernelContext* context, StepId step,
                                            std::vector<Request>* requests) {
  Pairing pairing = pairing_;
  TF_RETURN_IF_ERROR(ReadTicket(context, &pairing));
  for (std::size_t i = 0; i < labels_.size(); ++i) {
    Request request;
    request.communicator = communicator_;
    request.kind = kind_;
    request.op = op_;
    request.prescale = prescale_;
    request.postscale = postscale_;
    request.label = labels_[i];
    request.step = step;
    request.pairing = pairing;
    request.pairing.param_index += static_cast<std::uint32_t>(i);
    if (pairing.kind == Pairing::kName) request.pairing.name = labels_[i];
    if (tensors_ == 0) {
      request.dtype = DType::kUInt8;
      request.shape = {0};
    } else {
      const Tensor& input = context->input(static_cast<int>(i));
      TF_RETURN_IF_ERROR(ToDType(input.dtype(), &request.dtype));
      request.shape = ToShape(input.shape());
      request.input = input.tensor_data().data();
    }
    requests->push_back(std::move(request));
  }
  return absl::OkStatus();
}

absl::Status CollectiveKernel::ForwardOutputs(OpKernelContext* context, std::vector<Request>* requests) {
  int index = 0;
  for (Request& request : *requests) {
    Tensor* output = nullptr;
    TF_RETURN_IF_ERROR(
        context->forward_input_or_allocate_output({index}, index, context->input(index).shape(), &output));
    request.output = const_cast<char*>(output->tensor_data().data());
    ++index;
  }
  return absl::OkStatus();
}

void CollectiveKernel::AllocateOutputsLater(OpKernelContext* context, std::vector<Request>* requests,
                                            int splits_output) {
  int index = 0;
  for (Request& request : *requests) {
    request.allocate = [context, index, splits_output](const std::vector<std::int64_t>& rows, void** output) {
      absl::Status status;
      if (splits_output >= 0) {
        Tensor* splits = nullptr;
        status = context->allocate_output(splits_output,
                                          TensorShape({static_cast<std::int64_t>(rows.size())}), &splits);
        if (!status.ok()) return FromTensorFlow(status);
        std::copy(rows.begin(), rows.end(), splits->flat<std::int64_t>().data());
      }
      TensorShape shape = context->input(index).shape();
      Tensor* tensor = nullptr;
      status = shape.SetDimWithStatus(0, std::accumulate(rows.begin(), rows.end(), std::int64_t{0}));
      if (status.ok()) status = context->allocate_output(index, shape, &tensor);
      if (!status.ok()) return FromTensorFlow(status);
      *output = const_cast<char*>(tensor->tensor_data().data());
      return Status();
    };
    ++index;
  }
}

}  // namespace tf_smddp

#include "kernels/tf/collective_kernel.h"

#include <algorithm>
#include <memory>
#include <numeric>
#include <string>
#include <utility>

#include "kernels/engine/engine.h"
#include "kernels/process/global_engine.h"
#include "kernels/tf/conversions.h"
#include "kernels/tf/eager_ops.h"
#include "kernels/tf/step.h"
#include "kernels/tf/submission.h"
#include "kernels/tf/ticket_value.h"
#include "tensorflow/core/framework/tensor_shape.h"
#include "tsl/profiler/lib/traceme.h"

namespace tf_smddp {

using ::tensorflow::OpKernelConstruction;
using ::tensorflow::OpKernelContext;
using ::tensorflow::Tensor;
using ::tensorflow::TensorShape;
using ::tsl::profiler::GetCurrentTimeNanos;
using ::tsl::profiler::TraceMeRecorder;

CollectiveKernel::CollectiveKernel(OpKernelConstruction* context, CollectiveKind kind, int tensors,
                                   Pairing::Kind sequence)
    : AsyncOpKernel(context) {
  OP_REQUIRES_OK(context, CollectiveAttributes::Read(context, kind, tensors, sequence, &attributes_));
}

void CollectiveKernel::ComputeAsync(OpKernelContext* context, DoneCallback done) {
  if (TraceMeRecorder::Active()) {
    // In TensorFlow's profiler: the time until the result is there. Its own event of this op is the call. An
    // event with a begin and an end of its own (TraceMe) must end in the thread in which it began.
    done = [what = std::string(type_string()) + " until done: " + name(), begin = GetCurrentTimeNanos(),
            ended = std::move(done)] {
      if (TraceMeRecorder::Active()) TraceMeRecorder::Record({what, begin, GetCurrentTimeNanos()});
      ended();
    };
  }
  if (attributes_.eager && HasGpuKernels()) CountEagerOp(attributes_.communicator);
  std::shared_ptr<Engine> engine = GlobalEngine();
  OP_REQUIRES_ASYNC(context, engine != nullptr, ToTensorFlow(NotInitialized()), done);
  const std::shared_ptr<Step> step = Step::Of(context, engine, attributes_.eager);
  Pairing pairing = attributes_.pairing;
  bool draws = false;
  absl::Status status = ReadTicket(context, &pairing, &draws);
  if (draws) {
    const Status drawn = engine->DrawTicket(attributes_.communicator, step->number(), &pairing.ticket);
    OP_REQUIRES_ASYNC(context, drawn.ok(), ToTensorFlow(drawn), done);
  }
  std::vector<Label> given;
  if (status.ok()) status = ReadLabels(context, &given);
  const std::vector<Label>& labels = given.empty() ? attributes_.labels : given;
  std::vector<Request> requests;
  std::shared_ptr<GpuTensors> gpu;
  const Status found = GpuTensors::Of(context, &gpu);
  if (status.ok()) status = ToTensorFlow(found);
  if (status.ok()) status = MakeRequests(context, step->number(), pairing, labels, gpu.get(), &requests);
  if (status.ok()) status = FillIn(context, gpu.get(), &requests);
  const Status marked = status.ok() && gpu != nullptr ? gpu->Mark() : Status();
  if (status.ok()) status = ToTensorFlow(marked);
  if (!status.ok()) {
    for (const Status& on_gpu : {found, marked}) {
      if (on_gpu.code() == StatusCode::kDeviceLost) {
        engine->Abort("rank " + std::to_string(engine->config().rank) + ": " + on_gpu.message());
      }
    }
    // The other ranks run this op, and would wait for this one.
    engine->FailStep(attributes_.communicator, step->number(),
                     "rank " + std::to_string(engine->config().rank) + " could not run " +
                         CollectiveKindName(attributes_.operation.kind) + " '" + labels[0].text +
                         "': " + std::string(status.message()));
    step->FailedIn(attributes_.communicator);
    context->SetStatus(status);
    done();
    return;
  }
  SubmitAsync(context, engine, step, std::move(gpu), attributes_.eager, std::move(requests), std::move(done));
}

// Sets *draws if the ticket is still to be drawn.
absl::Status CollectiveKernel::ReadTicket(OpKernelContext* context, Pairing* pairing, bool* draws) const {
  if (attributes_.ticket_input < 0) return absl::OkStatus();
  const Tensor& tensor = context->input(attributes_.ticket_input);
  if (tensor.NumElements() != 1) {
    return absl::InvalidArgumentError("the ticket has the shape " + tensor.shape().DebugString() +
                                      "; it must be one number");
  }
  const std::int64_t ticket = tensor.flat<std::int64_t>()(0);
  pairing->kind = ticket == kPairsByName ? Pairing::kName : Pairing::kGroup;
  *draws = ticket == kDrawsItself;
  if (ticket >= 0) pairing->ticket = static_cast<std::uint64_t>(ticket);
  return absl::OkStatus();
}

absl::Status CollectiveKernel::ReadFactors(OpKernelContext* context, double* prescale,
                                           double* postscale) const {
  if (attributes_.factors_input < 0) return absl::OkStatus();
  const Tensor& tensor = context->input(attributes_.factors_input);
  if (tensor.NumElements() != 2) {
    return absl::InvalidArgumentError("the factors have the shape " + tensor.shape().DebugString() +
                                      "; there must be two numbers");
  }
  *prescale = tensor.flat<double>()(0);
  *postscale = tensor.flat<double>()(1);
  return absl::OkStatus();
}

// Sets `labels` if they are an input.
absl::Status CollectiveKernel::ReadLabels(OpKernelContext* context, std::vector<Label>* labels) const {
  if (attributes_.labels_input < 0) return absl::OkStatus();
  const Tensor& tensor = context->input(attributes_.labels_input);
  if (tensor.NumElements() != static_cast<std::int64_t>(attributes_.labels.size())) {
    return absl::InvalidArgumentError("there are " + std::to_string(tensor.NumElements()) + " labels for " +
                                      std::to_string(attributes_.labels.size()) + " tensors; give one each");
  }
  const auto values = tensor.flat<::tensorflow::tstring>();
  for (std::size_t i = 0; i < attributes_.labels.size(); ++i) {
    labels->emplace_back(values.data()[i], attributes_.labels[i].text);
  }
  return absl::OkStatus();
}

absl::Status CollectiveKernel::MakeRequests(OpKernelContext* context, StepId step, Pairing pairing,
                                            const std::vector<Label>& labels, GpuTensors* gpu,
                                            std::vector<Request>* requests) {
  Operation operation = attributes_.operation;
  TF_RETURN_IF_ERROR(ReadFactors(context, &operation.prescale, &operation.postscale));
  for (std::size_t i = 0; i < labels.size(); ++i) {
    Request request;
    request.communicator = attributes_.communicator;
    request.operation = operation;
    request.label = labels[i].text;
    request.meaning = labels[i].meaning;
    request.step = step;
    request.pairing = pairing;
    request.pairing.param_index += static_cast<std::uint32_t>(i);
    if (pairing.kind == Pairing::kName) request.pairing.name = request.label;
    if (attributes_.tensors == 0) {
      request.operation.dtype = DType::kUInt8;
      request.shape = {0};
    } else {
      const Tensor& input = context->input(static_cast<int>(i));
      TF_RETURN_IF_ERROR(ToDType(input.dtype(), &request.operation.dtype));
      request.shape = ToShape(input.shape());
      const void* const data = input.tensor_data().data();
      request.input = gpu == nullptr ? InputBuffer(data) : gpu->Input(data);
    }
    requests->push_back(std::move(request));
  }
  return absl::OkStatus();
}

absl::Status CollectiveKernel::ForwardOutputs(OpKernelContext* context, GpuTensors* gpu,
                                              std::vector<Request>* requests) {
  int index = 0;
  for (Request& request : *requests) {
    Tensor* output = nullptr;
    TF_RETURN_IF_ERROR(
        context->forward_input_or_allocate_output({index}, index, context->input(index).shape(), &output));
    void* const data = const_cast<char*>(output->tensor_data().data());
    request.output = gpu == nullptr ? Buffer(data) : gpu->Output(data);
    ++index;
  }
  return absl::OkStatus();
}

void CollectiveKernel::AllocateOutputsLater(OpKernelContext* context, GpuTensors* gpu,
                                            std::vector<Request>* requests, int splits_output) {
  int index = 0;
  for (Request& request : *requests) {
    if (gpu != nullptr) request.output = gpu->Output(nullptr);
    request.allocate = [context, gpu, index, splits_output](const std::vector<std::int64_t>& rows,
                                                            void** output) {
      // TensorFlow's allocators would wait for memory, but this thread has other things to do.
      const tensorflow::AllocationAttributes at_once(/*retry_on_failure=*/false,
                                                     /*allocation_will_be_logged=*/true, nullptr);
      TensorShape shape = context->input(index).shape();
      Tensor tensor;
      absl::Status status =
          shape.SetDimWithStatus(0, std::accumulate(rows.begin(), rows.end(), std::int64_t{0}));
      if (status.ok()) {
        status = context->allocate_temp(context->input(index).dtype(), shape, &tensor,
                                        context->output_alloc_attr(index), at_once);
      }
      if (!status.ok()) return FromTensorFlow(status);
      if (splits_output >= 0) {
        Tensor* splits = nullptr;
        status = context->allocate_output(splits_output,
                                          TensorShape({static_cast<std::int64_t>(rows.size())}), &splits);
        if (!status.ok()) return FromTensorFlow(status);
        std::copy(rows.begin(), rows.end(), splits->flat<std::int64_t>().data());
      }
      *output = const_cast<char*>(tensor.tensor_data().data());
      context->set_output(index, std::move(tensor));
      return gpu == nullptr ? Status() : gpu->Mark();
    };
    ++index;
  }
}

}  // namespace tf_smddp

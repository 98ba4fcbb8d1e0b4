// The kernels of SmddpTicket, and of SmddpStepMark, which takes its place in graphs that pair by name.
#include <cstdint>
#include <memory>
#include <string>

#include "kernels/process/global_engine.h"
#include "kernels/tf/conversions.h"
#include "kernels/tf/gpu_tensors.h"
#include "kernels/tf/step.h"
#include "kernels/tf/step_error.h"
#include "kernels/tf/ticket_value.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace tf_smddp {
namespace {

using ::tensorflow::OpKernelConstruction;
using ::tensorflow::OpKernelContext;
using ::tensorflow::Tensor;

class TicketKernel : public tensorflow::OpKernel {
 public:
  explicit TicketKernel(OpKernelConstruction* context) : OpKernel(context) {
    int communicator = 0;
    OP_REQUIRES_OK(context, context->GetAttr("communicator", &communicator));
    communicator_ = static_cast<CommunicatorId>(communicator);
  }

  void Compute(OpKernelContext* context) override {
    const std::shared_ptr<Engine> engine = GlobalEngine();
    OP_REQUIRES(context, engine != nullptr, ToTensorFlow(NotInitialized()));
    const std::shared_ptr<Step> step = Step::Of(context, engine, /*eager=*/false);
    OP_REQUIRES(
        context, !step->Cancelled(),
        absl::InternalError("no ticket was drawn: the step " + DescribeStepError(StepError(context).Ask())));
    std::uint64_t ticket = 0;
    const Status status = engine->DrawTicket(communicator_, step->number(), &ticket);
    if (!status.ok()) {
      step->FailedIn(communicator_);
      context->SetStatus(ToTensorFlow(status));
      return;
    }
    step->Drew(communicator_, ticket);
    Tensor* output = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(0, {}, &output));
    output->scalar<std::int64_t>()() = static_cast<std::int64_t>(ticket);
  }

  // It runs at once, on the thread that finds it ready, since all collectives of its group wait for it.
  bool IsExpensive() override { return false; }

 private:
  CommunicatorId communicator_ = kWorld;
};

// It runs when the step begins. So the other ranks, which may wait for the step's first collective, are told
// when the step fails before it.
class StepMarkKernel : public tensorflow::OpKernel {
 public:
  explicit StepMarkKernel(OpKernelConstruction* context) : OpKernel(context) {
    int communicator = 0;
    OP_REQUIRES_OK(context, context->GetAttr("communicator", &communicator));
    communicator_ = static_cast<CommunicatorId>(communicator);
  }

  void Compute(OpKernelContext* context) override {
    const std::shared_ptr<Engine> engine = GlobalEngine();
    OP_REQUIRES(context, engine != nullptr, ToTensorFlow(NotInitialized()));
    const std::shared_ptr<Step> step = Step::Of(context, engine, false);
    if (!step->Join(communicator_)) FailUnlessDataEnded(context, engine.get(), step.get());
    Tensor* output = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(0, {}, &output));
    output->scalar<std::int64_t>()() = kPairsByName;
  }

  bool IsExpensive() override { return false; }

 private:
  // The step was over before its mark ran. The end of the data is no failure (step.h).
  void FailUnlessDataEnded(OpKernelContext* context, Engine* engine, Step* step) {
    const absl::Status error = StepError(context).Ask();
    if (absl::IsOutOfRange(error)) return;
    engine->FailStep(
        communicator_, step->number(),
        "a step of rank " + std::to_string(engine->config().rank) + " " + DescribeStepError(error));
    step->FailedIn(communicator_);
  }

  CommunicatorId communicator_ = kWorld;
};

REGISTER_KERNEL_BUILDER(Name("SmddpTicket").Device(tensorflow::DEVICE_CPU), TicketKernel);
REGISTER_KERNEL_BUILDER(Name("SmddpStepMark").Device(tensorflow::DEVICE_CPU), StepMarkKernel);
TF_SMDDP_REGISTER_ON_GPU(TicketKernel, "SmddpTicket", "ticket");
TF_SMDDP_REGISTER_ON_GPU(StepMarkKernel, "SmddpStepMark", "ticket");

}  // namespace
}  // namespace tf_smddp

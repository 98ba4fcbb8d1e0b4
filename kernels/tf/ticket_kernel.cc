// The CPU kernel of SmddpTicket.
#include <memory>

#include "kernels/tf/conversions.h"
#include "kernels/tf/global_engine.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace tf_smddp {
namespace {

using ::tensorflow::OpKernelContext;
using ::tensorflow::Tensor;

class TicketKernel : public tensorflow::OpKernel {
 public:
  using OpKernel::OpKernel;

  void Compute(OpKernelContext* context) override {
    const std::shared_ptr<Engine> engine = GlobalEngine();
    OP_REQUIRES(context, engine != nullptr, ToTensorFlow(NotInitialized()));
    Tensor* ticket = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(0, {}, &ticket));
    ticket->scalar<std::int64_t>()() = static_cast<std::int64_t>(engine->NextTicket());
  }
};

REGISTER_KERNEL_BUILDER(Name("SmddpTicket").Device(tensorflow::DEVICE_CPU), TicketKernel);

}  // namespace
}  // namespace tf_smddp

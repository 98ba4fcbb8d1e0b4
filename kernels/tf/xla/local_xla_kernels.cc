// The XLA kernels of the ops that do not communicate: tickets, step marks, the chain, and overlap.
#include <cstdint>

#include "kernels/tf/xla/builder.h"
#include "kernels/tf/xla/call_emitter.h"
#include "kernels/tf/xla/registration.h"
#include "tensorflow/compiler/tf2xla/xla_op_kernel.h"

namespace tf_smddp {
namespace {

using ::tensorflow::XlaExpression;
using ::tensorflow::XlaOpKernel;
using ::tensorflow::XlaOpKernelContext;

class TicketXlaKernel : public XlaOpKernel {
 public:
  using XlaOpKernel::XlaOpKernel;

  void Compile(XlaOpKernelContext* context) override {
    ::xla::XlaOp ticket;
    OP_REQUIRES_OK(context, CallEmitter(context).LateTicket(&ticket));
    context->SetOutput(0, ticket);
  }
};

// A compiled program runs as a whole, so there is no step that could fail between its ops.
class StepMarkXlaKernel : public XlaOpKernel {
 public:
  using XlaOpKernel::XlaOpKernel;

  void Compile(XlaOpKernelContext* context) override {
    constexpr std::int64_t kByName = -1;
    context->SetOutput(0, ::xla::ConstantR0<std::int64_t>(context->builder(), kByName));
  }
};

class ChainXlaKernel : public XlaOpKernel {
 public:
  explicit ChainXlaKernel(::tensorflow::OpKernelConstruction* context) : XlaOpKernel(context) {
    OP_REQUIRES_OK(context, context->GetAttr("hand_back", &hand_back_));
  }

  void Compile(XlaOpKernelContext* context) override {
    CallEmitter emitter(context);
    ::tensorflow::XlaResource* chain = nullptr;
    OP_REQUIRES_OK(context, emitter.ChainResource(hand_back_, &chain));
    for (int i = 0; i < context->num_inputs(); ++i) {
      OP_REQUIRES_OK(context, emitter.Pass(context->Input(i)));
    }
    context->SetResourceOutput(0, chain);
  }

 private:
  bool hand_back_ = true;
};

// XLA neither moves nor fuses computations across an optimization barrier.
class OverlapXlaKernel : public XlaOpKernel {
 public:
  using XlaOpKernel::XlaOpKernel;

  void Compile(XlaOpKernelContext* context) override {
    const XlaExpression& input = context->InputExpression(0);
    if (input.kind() == XlaExpression::Kind::kXlaOp) {
      context->SetOutput(0, ::xla::OptimizationBarrier(context->Input(0)));
    } else {
      context->SetOutputExpression(0, input);  // a constant, for example, which no computation makes
    }
  }
};

TF_SMDDP_REGISTER_XLA("SmddpTicket", TicketXlaKernel);
TF_SMDDP_REGISTER_XLA("SmddpStepMark", StepMarkXlaKernel);
TF_SMDDP_REGISTER_XLA("SmddpChain", ChainXlaKernel);
TF_SMDDP_REGISTER_XLA("SmddpOverlap", OverlapXlaKernel);

}  // namespace
}  // namespace tf_smddp

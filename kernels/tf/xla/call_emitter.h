// CallEmitter: adds custom calls (custom_calls.h) to the XLA computation that is being built.
//
// Place in the stack: between the XLA kernels and XLA's builder. Not here: what the calls do.
//
// Note [The chain]: XLA runs calls that do not depend on each other in any order, and newer versions run them
// concurrently. The order differs from run to run and from rank to rank. So all of our calls in one
// computation form a chain: each takes a token as an operand and returns one. The order of the chain is the
// order of compilation, which follows data and control edges. compiled_order.py adds control edges
// in program order, so the order is the same on all ranks. At most one of XLA's threads is blocked in our
// calls, and all ranks block in the same order. The starts of a group, which do not block, may have no order
// among themselves (Note [Starts of a group]).
//
// The body of a loop, and each branch, is a computation of its own, which continues the chain of the
// computation around it. The last token of a chain is the value of a resource. TensorFlow's bridge treats
// this resource as it treats a variable, but no variable exists behind it: a loop or a branch that takes it
// as an input begins with its value and returns a new one (SmddpChain, compiled_order.py). The
// condition of a loop takes the resource and must not change it. So where only the condition has calls, the
// token that the loop returns is the one that it was given, and XLA may run what follows before the loop.
// Therefore a call that has a result of the loop as its operand passes on the token (Pass).
//
// Note [Late tickets]: control edges have no meaning to XLA, and a call that only draws a ticket depends on
// no data. Such a call could run before or after a loop that precedes it in the program. So the ticket op
// emits no call. The first call that uses the ticket draws it, when the tensor of that call has been
// computed.
//
// Note [Starts of a group]: a program for a CPU runs a call when its operands are there, or in an order that
// visits the operands of each call before it. There each start takes the token of the start before, which
// keeps them in the order of the backward pass.
//
// A program for a GPU runs in one order, which XLA chooses so that memory is small. A start frees no memory,
// so XLA may put all of them behind the backward pass. Then it moves up the calls that ask for that
// (SCHEDULE_EARLIEST): behind what has made the last of their operands. It does not look at the users
// of a call that it has moved, so in a chain of starts the second one would stay where it is. Therefore each
// start takes the token of the begin call, which stays in its place; and the first finish takes the tokens of
// all starts (test_xla_on_pretend_gpu.py looks at the order). The order of starts may then differ from rank
// to rank, which the engine allows within a group. The begin call's result is a scalar and not a tuple: XLA
// puts scalars right behind their operands.
// Limit: XLA may be late to take a gradient out of the tuple of a kernel with several results, and its start
// is late, too. That was seen with element-wise layers and TensorFlow 2.21.
#ifndef TF_SMDDP_KERNELS_TF_XLA_CALL_EMITTER_H_
#define TF_SMDDP_KERNELS_TF_XLA_CALL_EMITTER_H_

#include <vector>

#include "kernels/tf/xla/call_description.h"
#include "tensorflow/compiler/tf2xla/xla_op_kernel.h"

namespace tf_smddp {

class CallEmitter {
 public:
  // Emits into the computation for which `context` compiles an op. `context` must outlive the emitter.
  explicit CallEmitter(tensorflow::XlaOpKernelContext* context) : context_(context) {}

  // Sets `ticket` to an int64 scalar that stands for a ticket; the first call that uses it draws it.
  absl::Status LateTicket(xla::XlaOp* ticket);

  // Sets `resource` to the resource whose value is the chain's last token, for the computations of a loop or
  // a branch. Without `hand_back` this computation does not return its last token to the computation around
  // it; then this must be the first call of the computation's emitters.
  absl::Status ChainResource(bool hand_back, tensorflow::XlaResource** resource);

  // Emits a call that only passes on the token. The rest of the chain runs when `tensor` has been
  // computed.
  absl::Status Pass(xla::XlaOp tensor);

  // Emits a call that runs a whole collective. `inputs` are its tensors, and then the ticket if there is one.
  // `outputs` becomes one result for each tensor. A result has the shape of its input, whose buffer it may
  // reuse, or the rows that the description expects.
  absl::Status Run(const CallDescription& description, const std::vector<xla::XlaOp>& inputs,
                   std::vector<xla::XlaOp>* outputs);

  // Emits a begin call, which draws the ticket if nothing has used it; a start call for each tensor of the
  // group, from the last to the first, since a backward pass computes them in that order; and a finish call
  // for each. Every finish depends on all starts, so XLA cannot schedule one before a computation of another
  // tensor. `starts_in_order`: Note [Starts of a group].
  absl::Status RunGroup(const CallDescription& description, const std::vector<xla::XlaOp>& tensors,
                        xla::XlaOp ticket, bool starts_in_order, std::vector<xla::XlaOp>* outputs);

 private:
  class Chain;

  absl::Status FindChain(Chain** chain, bool hand_back = true);
  // Replaces a late `ticket` by the drawn one, and sets the description's ticket_number. Emits the call that
  // draws it, after `first` has been computed, unless another call has used the ticket before.
  absl::Status Drawn(CallDescription* description, xla::XlaOp first, xla::XlaOp* ticket);
  // Emits a call whose results have the shapes `results`, and a token: in a tuple, but for kBeginCall. Each
  // of the first `aliased` results uses the buffer of the operand with the same index.
  absl::Status Call(const char* target, const CallDescription& description, std::vector<xla::XlaOp> operands,
                    const std::vector<xla::Shape>& results, std::size_t aliased,
                    std::vector<xla::XlaOp>* outputs);

  tensorflow::XlaOpKernelContext* const context_;
};

}  // namespace tf_smddp

#endif  // TF_SMDDP_KERNELS_TF_XLA_CALL_EMITTER_H_

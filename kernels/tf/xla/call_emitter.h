// CallEmitter: puts our calls (custom_calls.cc) into the XLA computation that is being built.
//
// Place in the stack: between the XLA kernels and XLA's builder. Not here: what the calls do.
//
// Note [The chain]: XLA runs calls that don't depend on each other in any order, newer versions at once on
// several threads, and that order differs from run to run and from rank to rank. So all of our calls in one
// computation form one chain: each takes a token and leaves one. The chain's order is that of compilation,
// which follows data and control edges; tf_smddp/_compiled_order.py adds control edges in program order, so
// it is the same on all ranks. So at most one thread of XLA's is blocked in our calls, and all ranks block in
// the same order.
//
// The body of a loop and a branch are computations of their own. They go on with the chain of the one around
// them: its end is the value of a resource like those that stand for variables, but one that lives in the
// program alone. A loop or a branch that has such a resource as an input gets it at its beginning and hands
// its own end back, as TensorFlow's bridge has it with variables (SmddpChain, tf_smddp/_compiled_order.py).
// The condition of a loop gets it and must not change it: XLA runs nothing beside it before it has ended.
//
// Note [Late tickets]: control edges mean nothing to XLA, and a call that only draws a ticket needs no data:
// it could draw before or after a loop that stands before it in the program. So the ticket op is no call. The
// first call that uses the ticket has it drawn when its tensor is there.
#ifndef TF_SMDDP_KERNELS_TF_XLA_CALL_EMITTER_H_
#define TF_SMDDP_KERNELS_TF_XLA_CALL_EMITTER_H_

#include <vector>

#include "kernels/tf/xla/call_description.h"
#include "tensorflow/compiler/tf2xla/xla_op_kernel.h"

namespace tf_smddp {

class CallEmitter {
 public:
  // For the computation that `context` compiles an op of; both outlive it.
  explicit CallEmitter(tensorflow::XlaOpKernelContext* context) : context_(context) {}

  // A ticket that is drawn when it is used: an int64 scalar.
  absl::Status LateTicket(xla::XlaOp* ticket);

  // What holds the chain's end, to hand it to the computations of a loop or a branch. Without `hand_back`,
  // which then must be said before anything else is emitted, this computation keeps its own end to itself.
  absl::Status ChainResource(bool hand_back, tensorflow::XlaResource** resource);

  // Runs a whole collective. `inputs`: its tensors, and the ticket if there is one. The outputs are like
  // their inputs, and then XLA is told that they may take the inputs' place, or have the rows that the
  // description expects. `outputs` are set for the tensors.
  absl::Status Run(const CallDescription& description, const std::vector<xla::XlaOp>& inputs,
                   std::vector<xla::XlaOp>* outputs);

  // Starts all tensors of a group, the last one first, since that is how a backward pass makes them; then
  // finishes all. What computes the tensors runs between the starts: XLA cannot put a finish before it, since
  // each waits for all starts.
  absl::Status RunGroup(const CallDescription& description, const std::vector<xla::XlaOp>& tensors,
                        xla::XlaOp ticket, std::vector<xla::XlaOp>* outputs);

 private:
  class Chain;

  absl::Status FindChain(Chain** chain, bool hand_back = true);
  // The ticket to use for `ticket`, which the tensor `first` is the first to use, or a later one; drawn if it
  // is a late one.
  absl::Status Drawn(const CallDescription& description, xla::XlaOp first, xla::XlaOp* ticket);
  // A call whose results are `results` and a token. The first `aliased` results take the place of the
  // operands of those numbers.
  absl::Status Call(const char* target, const CallDescription& description, std::vector<xla::XlaOp> operands,
                    const std::vector<xla::Shape>& results, std::size_t aliased,
                    std::vector<xla::XlaOp>* outputs);

  tensorflow::XlaOpKernelContext* const context_;
};

}  // namespace tf_smddp

#endif  // TF_SMDDP_KERNELS_TF_XLA_CALL_EMITTER_H_

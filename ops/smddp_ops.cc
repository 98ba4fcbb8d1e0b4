// What TensorFlow's graph sees: the ops' signatures, shapes and documentation. Not here: what they do
// (kernels/tf).
//
// All are stateful: a constant input must not be folded, equal ops must not be merged. The Python package
// adds the allreduces to the ops that automatic control dependencies leave unordered, so that several run at
// once.
#include "tensorflow/core/framework/common_shape_fns.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/shape_inference.h"

namespace {

using ::tensorflow::shape_inference::InferenceContext;
using ::tensorflow::shape_inference::ShapeHandle;

// Output 0 is like input 0; input 1 is the ticket.
absl::Status AllreduceShape(InferenceContext* context) {
  ShapeHandle scalar;
  TF_RETURN_IF_ERROR(context->WithRank(context->input(1), 0, &scalar));
  context->set_output(0, context->input(0));
  return absl::OkStatus();
}

// Output i is like input i; the last input is the ticket.
absl::Status GroupedAllreduceShape(InferenceContext* context) {
  ShapeHandle scalar;
  TF_RETURN_IF_ERROR(context->WithRank(context->input(context->num_inputs() - 1), 0, &scalar));
  for (int i = 0; i < context->num_outputs(); ++i) context->set_output(i, context->input(i));
  return absl::OkStatus();
}

}  // namespace

REGISTER_OP("SmddpTicket")
    .Output("ticket: int64")
    .SetIsStateful()
    .SetShapeFn(::tensorflow::shape_inference::ScalarShape)
    .Doc(R"doc(
Draws the ticket of the next group of tensors.

Tickets count up from 0 on each rank. All tensors of one execution of a group carry the same ticket, and the ranks'
groups meet by it. Stateful, so that automatic control dependencies draw tickets in program order.

ticket: The number of this execution.
)doc");

REGISTER_OP("SmddpAllreduce")
    .Input("tensor: T")
    .Input("ticket: int64")
    .Output("output: T")
    .Attr("T: {half, bfloat16, float, double, int32, int64, uint8, bool}")
    .Attr("reduce_op: {'sum', 'average', 'min', 'max', 'product'}")
    .Attr("param_index: int >= 0")
    .Attr("num_params: int >= 1")
    .Attr("tensor_name: string = ''")
    .SetIsStateful()
    .SetIsDistributedCommunication()
    .SetShapeFn(AllreduceShape)
    .Doc(R"doc(
Reduces a tensor over all ranks; every rank gets the result.

tensor: This rank's part; the same type and shape on all ranks.
ticket: A scalar from SmddpTicket, shared by the tensors of one group; -1 pairs by name instead, as graphs without
  program order need: the n-th execution under a name meets the n-th under that name on the other ranks.
output: The reduction, bitwise the same on all ranks.
reduce_op: How elements are combined. bool has 'min' (and) and 'max' (or) only.
param_index: Which tensor of the group this is, from 0.
num_params: How many tensors the group has.
tensor_name: For messages and for pairing by name; the node's name when it is empty.
)doc");

REGISTER_OP("SmddpGroupedAllreduce")
    .Input("tensors: T")
    .Input("ticket: int64")
    .Output("outputs: T")
    .Attr("T: list({half, bfloat16, float, double, int32, int64, uint8, bool}) >= 1")
    .Attr("reduce_op: {'sum', 'average', 'min', 'max', 'product'}")
    .Attr("tensor_names: list(string) = []")
    .SetIsStateful()
    .SetIsDistributedCommunication()
    .SetShapeFn(GroupedAllreduceShape)
    .Doc(R"doc(
Reduces several tensors over all ranks as one group, in one op: for eager execution, which runs one op at a time.

tensors: This rank's parts; the same types and shapes, in the same order, on all ranks.
ticket: A scalar from SmddpTicket; -1 pairs by name (see SmddpAllreduce).
outputs: The reductions.
reduce_op: How elements are combined.
tensor_names: One for each tensor, or none: for messages.
)doc");

REGISTER_OP("SmddpBroadcast")
    .Input("tensor: T")
    .Output("output: T")
    .Attr("T: {half, bfloat16, float, double, int32, int64, uint8, bool}")
    .Attr("root_rank: int >= 0")
    .Attr("tensor_name: string = ''")
    .Attr("pair_by_name: bool = false")
    .SetIsStateful()
    .SetIsDistributedCommunication()
    .SetShapeFn(::tensorflow::shape_inference::UnchangedShape)
    .Doc(R"doc(
Gives every rank the root's tensor.

tensor: The value on the root; elsewhere only its type and shape count, which must be the same.
output: The root's value.
root_rank: A rank.
tensor_name: For messages and for pairing by name; the node's name when it is empty.
pair_by_name: Pairs the n-th execution under a name, for graphs without program order. Else the n-th execution of
  all broadcasts and barriers of a rank meets the n-th of the others.
)doc");

REGISTER_OP("SmddpBarrier")
    .Attr("tensor_name: string = ''")
    .Attr("pair_by_name: bool = false")
    .SetIsStateful()
    .SetIsDistributedCommunication()
    .SetShapeFn(::tensorflow::shape_inference::NoOutputs)
    .Doc(R"doc(
Finishes on no rank before every rank has started it.

tensor_name: For messages and for pairing by name; the node's name when it is empty.
pair_by_name: As for SmddpBroadcast.
)doc");

// The definitions of the ops: signatures, shape functions and documentation. Not here: what they do
// (kernels/tf).
//
// All ops that communicate are stateful: a constant input must not be folded, and equal ops must not be
// merged. Automatic control dependencies leave those with a ticket unordered, so that several run at once.
// The Python package reads from these definitions which ops communicate (SetIsDistributedCommunication),
// which ones take a ticket (an input of that name), and which types they take.
//
// A name of a tensor may begin with what the tensor means, between two line feeds. Tensors of other meanings
// do not meet, even if their shapes agree. Nothing between them: the user gave the name, which is the same on
// all ranks. Two numbers: a gradient's place in its list, and the number of its variable
// (kernels/control/manifest.h). Without these, the name is for messages only, and may differ between ranks.
#include "ops/shape_functions.h"
#include "ops/type_list.h"
#include "tensorflow/core/framework/common_shape_fns.h"
#include "tensorflow/core/framework/op.h"

#define TF_SMDDP_REDUCE_OPS "{'sum', 'average', 'min', 'max', 'product'}"
#define TF_SMDDP_COMPRESSIONS "{'none', 'fp16', 'bf16'}"

REGISTER_OP("SmddpTicket")
    .Output("ticket: int64")
    .Attr("communicator: int >= 0 = 0")
    .SetIsStateful()
    .SetShapeFn(::tensorflow::shape_inference::ScalarShape)
    .Doc(R"doc(
Draws the ticket of the next group of tensors.

Each rank counts its tickets from 0. All tensors of one execution of a group carry the same ticket, and they meet the
tensors of the other ranks that carry the same number. The op is stateful, so that automatic control dependencies run
it in program order. It fails with Internal if the step has failed on another rank.

ticket: The number of this execution, a scalar.
communicator: The number of the communicator (process set) in which the group is reduced; 0 is all ranks.
)doc");

REGISTER_OP("SmddpStepMark")
    .Output("ticket: int64")
    .Attr("communicator: int >= 0 = 0")
    .SetIsStateful()
    .SetShapeFn(::tensorflow::shape_inference::ScalarShape)
    .Doc(R"doc(
Stands in for a ticket in graphs without program order, whose ops pair by name.

The op runs when the step begins. If the step fails later on this rank, it fails on the other ranks as well.

ticket: The scalar -1.
communicator: The number of the communicator (process set) whose collectives the step runs; 0 is all ranks.
)doc");

REGISTER_OP("SmddpChain")
    .Input("after: after_types")
    .Output("chain: resource")
    .Attr("after_types: list(type) >= 0 = []")
    .Attr("hand_back: bool = true")
    .SetIsStateful()
    // The resource has no shape of contents, as a variable has. So TensorFlow looks for no gradient of it.
    .SetShapeFn(::tensorflow::shape_inference::ScalarShape)
    .Doc(R"doc(
Makes the resource that keeps the collectives in a function that XLA compiles in order.

A loop or a branch that takes the resource as an input is ordered, with its collectives, against the collectives
around it. The resource has a value only while XLA compiles; no kernel ever reads it.

after: Tensors that have been computed when the next collective of the chain runs. Control edges have no meaning to XLA.
chain: A scalar resource. All of these ops in one computation give the same one.
hand_back: Whether the computation returns the resource's value to the one around it. A loop's condition may change no
  resource, so the first op of the package in a condition sets it to false.
)doc");

REGISTER_OP("SmddpAllreduce")
    .Input("tensor: T")
    .Input("ticket: int64")
    .Input("factors: num_factors * double")
    .Input("labels: num_labels * string")
    .Output("output: T")
    .Attr("T: " TF_SMDDP_TYPES)
    .Attr("reduce_op: " TF_SMDDP_REDUCE_OPS)
    .Attr("compression: " TF_SMDDP_COMPRESSIONS " = 'none'")
    .Attr("param_index: int >= 0")
    .Attr("num_params: int >= 1")
    .Attr("tensor_name: string = ''")
    .Attr("num_factors: int >= 0 = 0")
    .Attr("num_labels: int >= 0 = 0")
    .Attr("communicator: int >= 0 = 0")
    .Attr("eager: bool = false")
    .SetIsStateful()
    .SetIsDistributedCommunication()
    .SetShapeFn(::tf_smddp::SameShapes)
    .Doc(R"doc(
Reduces a tensor over all ranks; every rank gets the result.

The op fails with InvalidArgument for a reduce_op that the type does not have, and with Internal on all ranks when
types, shapes or attributes differ between the ranks, or when a rank is gone.

tensor: This rank's part. It has the same type and shape on all ranks.
ticket: A scalar from SmddpTicket, shared by the tensors of one group. Graphs without program order have -1 instead:
  then the n-th execution under a name meets the n-th execution under that name on the other ranks.
factors: Nothing, or one vector of two numbers, for floating and complex types. Each rank's elements are multiplied by
  the first number before the reduction, and the result by the second one. They are compile-time constants for XLA.
labels: Nothing, or one vector of strings that replace the names below. Eager execution needs it, since TensorFlow
  keeps a kernel for each new value of an attribute.
output: The reduction. It has the shape of the input, and is bitwise the same on all ranks.
reduce_op: How elements are combined. bool has only 'min' (and) and 'max' (or); complex types have neither.
compression: The format in which sums and averages of type float cross a link between GPUs, or between hosts; the same
  on all ranks.
param_index: The index of the tensor in its group, from 0.
num_params: The number of tensors in the group.
tensor_name: Messages show it, and the tensor pairs by it if the ticket is -1; if it is empty, the node's name stands
  in.
communicator: The number of the communicator (process set) whose ranks take part; 0 is all ranks.
eager: Whether the op runs eagerly, and so belongs to no step. (TensorFlow gives eager ops step numbers, too.)
)doc");

REGISTER_OP("SmddpGroupedAllreduce")
    .Input("tensors: T")
    .Input("ticket: int64")
    .Input("factors: num_factors * double")
    .Input("labels: num_labels * string")
    .Output("outputs: T")
    .Attr("T: list(" TF_SMDDP_TYPES ") >= 1")
    .Attr("reduce_op: " TF_SMDDP_REDUCE_OPS)
    .Attr("compression: " TF_SMDDP_COMPRESSIONS " = 'none'")
    .Attr("tensor_names: list(string) = []")
    .Attr("num_factors: int >= 0 = 0")
    .Attr("num_labels: int >= 0 = 0")
    .Attr("communicator: int >= 0 = 0")
    .Attr("eager: bool = false")
    .SetIsStateful()
    .SetIsDistributedCommunication()
    .SetShapeFn(::tf_smddp::SameShapes)
    .Doc(R"doc(
Reduces several tensors over all ranks as one group, in one op.

Eager execution runs one op at a time, so a group of single ops would be reduced tensor by tensor. Errors are those of
SmddpAllreduce.

tensors: This rank's parts. They have the same types and shapes, in the same order, on all ranks.
ticket: A scalar from SmddpTicket, or -1 (see SmddpAllreduce).
factors: See SmddpAllreduce.
labels: See SmddpAllreduce.
outputs: The reductions, in the shapes of the inputs.
reduce_op: How elements are combined (see SmddpAllreduce).
compression: See SmddpAllreduce.
tensor_names: One name for each tensor, or none at all. Messages show them, and tensors pair by them if the ticket is
  -1; where there is none, the node's name stands in.
communicator: The number of the communicator (process set) whose ranks take part; 0 is all ranks.
eager: See SmddpAllreduce.
)doc");

REGISTER_OP("SmddpOobAllreduce")
    .Input("tensors: T")
    .Input("labels: num_labels * string")
    .Output("outputs: T")
    .Attr("T: list(" TF_SMDDP_TYPES ") >= 1")
    .Attr("reduce_op: " TF_SMDDP_REDUCE_OPS)
    .Attr("compression: " TF_SMDDP_COMPRESSIONS " = 'none'")
    .Attr("param_index: int >= 0 = 0")
    .Attr("num_params: int >= 1 = 1")
    .Attr("tensor_names: list(string) = []")
    .Attr("pair_by_name: bool = false")
    .Attr("num_labels: int >= 0 = 0")
    .Attr("communicator: int >= 0 = 0")
    .Attr("eager: bool = false")
    .SetIsStateful()
    .SetIsDistributedCommunication()
    .SetShapeFn(::tf_smddp::UnchangedShapes)
    .Doc(R"doc(
Reduces tensors over all ranks out of band: losses and metrics, beside the gradients.

The op runs even if nothing uses its results, and in program order. Errors are those of SmddpAllreduce.

tensors: This rank's parts. They have the same types and shapes, in the same order, on all ranks.
labels: See SmddpAllreduce.
outputs: The reductions, in the shapes of the inputs.
reduce_op: How elements are combined (see SmddpAllreduce).
compression: See SmddpAllreduce.
param_index: The index of the op's first tensor among all that are reduced together, in this op and others, from 0.
num_params: The number of those tensors. Both are the same on all ranks.
tensor_names: One name for each tensor, or none at all. Messages show them, and tensors pair by them if the ticket is
  -1; where there is none, the node's name stands in.
pair_by_name: For graphs without program order: the n-th execution under a name meets the n-th under that name on the
  other ranks. Otherwise the n-th tensor that a rank reduces out of band meets the n-th one of the other ranks.
communicator: The number of the communicator (process set) whose ranks take part; 0 is all ranks.
eager: See SmddpAllreduce.
)doc");

REGISTER_OP("SmddpAllgather")
    .Input("tensors: T")
    .Input("ticket: int64")
    .Input("labels: num_labels * string")
    .Output("outputs: T")
    .Attr("T: list(" TF_SMDDP_TYPES ") >= 1")
    .Attr("param_index: int >= 0 = 0")
    .Attr("num_params: int >= 0 = 0")
    .Attr("tensor_names: list(string) = []")
    .Attr("num_labels: int >= 0 = 0")
    .Attr("communicator: int >= 0 = 0")
    .Attr("eager: bool = false")
    .SetIsStateful()
    .SetIsDistributedCommunication()
    .SetShapeFn(::tf_smddp::OtherRows)
    .Doc(R"doc(
Concatenates the ranks' tensors along the first dimension, in the order of the ranks, for each tensor of a group.

The op fails with Internal on all ranks when types, or shapes but for the first dimension, differ between the ranks.

tensors: This rank's rows, of at least one dimension. The tensors are in the same order on all ranks. Types and shapes
  are the same on all ranks, except for the first dimension.
ticket: A scalar from SmddpTicket, or -1 (see SmddpAllreduce).
labels: See SmddpAllreduce.
outputs: All ranks' rows of each tensor.
param_index: The index of the op's first tensor among all that have the ticket, from 0.
num_params: The number of those tensors; 0 if there is no other op with the ticket.
tensor_names: One name for each tensor, or none at all. Messages show them, and tensors pair by them if the ticket is
  -1; where there is none, the node's name stands in.
communicator: The number of the communicator (process set) whose ranks take part; 0 is all ranks.
eager: See SmddpAllreduce.
)doc");

REGISTER_OP("SmddpReducescatter")
    .Input("tensors: T")
    .Input("ticket: int64")
    .Input("factors: num_factors * double")
    .Input("labels: num_labels * string")
    .Output("outputs: T")
    .Attr("T: list(" TF_SMDDP_TYPES ") >= 1")
    .Attr("reduce_op: " TF_SMDDP_REDUCE_OPS)
    .Attr("root_rank: int >= -1 = -1")
    .Attr("param_index: int >= 0 = 0")
    .Attr("num_params: int >= 0 = 0")
    .Attr("tensor_names: list(string) = []")
    .Attr("num_factors: int >= 0 = 0")
    .Attr("num_labels: int >= 0 = 0")
    .Attr("communicator: int >= 0 = 0")
    .Attr("eager: bool = false")
    .SetIsStateful()
    .SetIsDistributedCommunication()
    .SetShapeFn(::tf_smddp::OtherRows)
    .Doc(R"doc(
Reduces the tensors of a group over all ranks, and gives each rank a part of the rows.

Errors are those of SmddpAllreduce.

tensors: This rank's parts, of at least one dimension. They have the same types and shapes, in the same order, on all
  ranks.
ticket: A scalar from SmddpTicket, or -1 (see SmddpAllreduce).
factors: See SmddpAllreduce.
labels: See SmddpAllreduce.
outputs: This rank's rows of each reduction. The rows are split as evenly as possible: of r rows over n ranks, the
  first r mod n ranks get one more.
reduce_op: How elements are combined (see SmddpAllreduce).
root_rank: The rank that gets all rows, and the others none; -1 to split them.
param_index: The index of the op's first tensor among all that have the ticket, from 0.
num_params: The number of those tensors; 0 if there is no other op with the ticket.
tensor_names: One name for each tensor, or none at all. Messages show them, and tensors pair by them if the ticket is
  -1; where there is none, the node's name stands in.
communicator: The number of the communicator (process set) whose ranks take part; 0 is all ranks.
eager: See SmddpAllreduce.
)doc");

REGISTER_OP("SmddpAlltoall")
    .Input("tensor: T")
    .Input("splits: int64")
    .Input("ticket: int64")
    .Input("labels: num_labels * string")
    .Output("output: T")
    .Output("received_splits: int64")
    .Attr("T: " TF_SMDDP_TYPES)
    .Attr("tensor_name: string = ''")
    .Attr("num_labels: int >= 0 = 0")
    .Attr("communicator: int >= 0 = 0")
    .Attr("eager: bool = false")
    .SetIsStateful()
    .SetIsDistributedCommunication()
    .SetShapeFn(::tf_smddp::AlltoallShapes)
    .Doc(R"doc(
Sends some of the tensor's rows to each rank.

The op fails with InvalidArgument when the splits are negative or do not add up to the number of rows, and with
Internal on all ranks when types, or shapes but for the first dimension, differ between the ranks.

tensor: The rows for rank 0, then those for rank 1, and so on. Type and shape are the same on all ranks, except for the
  first dimension.
splits: A vector with the number of rows for each rank; an empty one splits the rows evenly.
ticket: A scalar from SmddpTicket, or -1 (see SmddpAllreduce).
labels: See SmddpAllreduce.
output: The rows that this rank gets, in the order of the ranks that sent them.
received_splits: A vector with the number of rows that each rank has sent.
tensor_name: See SmddpAllreduce.
communicator: The number of the communicator (process set) whose ranks take part; 0 is all ranks.
eager: See SmddpAllreduce.
)doc");

REGISTER_OP("SmddpBroadcast")
    .Input("tensor: T")
    .Input("labels: num_labels * string")
    .Output("output: T")
    .Attr("T: " TF_SMDDP_TYPES)
    .Attr("root_rank: int >= 0")
    .Attr("param_index: int >= 0 = 0")
    .Attr("num_params: int >= 1 = 1")
    .Attr("tensor_name: string = ''")
    .Attr("pair_by_name: bool = false")
    .Attr("num_labels: int >= 0 = 0")
    .Attr("communicator: int >= 0 = 0")
    .Attr("eager: bool = false")
    .SetIsStateful()
    .SetIsDistributedCommunication()
    .SetShapeFn(::tensorflow::shape_inference::UnchangedShape)
    .Doc(R"doc(
Copies the root's tensor to every rank.

The op fails with InvalidArgument when the root is not in the communicator, and with Internal on all ranks when types,
shapes or attributes differ between the ranks.

tensor: The value on the root. The other ranks' tensors have the same type and shape; their elements are not read.
labels: See SmddpAllreduce.
output: The root's tensor.
root_rank: The root's rank in the job, also if the communicator has fewer ranks.
param_index: The index of the variable among those that are broadcast together, from 0.
num_params: The number of those variables. Both are the same on all ranks.
tensor_name: Messages show it, and the tensor pairs by it if pair_by_name is set; if it is empty, the node's name
  stands in.
pair_by_name: For graphs without program order: the n-th execution under a name meets the n-th under that name on the
  other ranks. Otherwise the n-th broadcast or barrier of a rank meets the n-th one of the other ranks.
communicator: The number of the communicator (process set) whose ranks take part; 0 is all ranks.
eager: See SmddpAllreduce.
)doc");

REGISTER_OP("SmddpBarrier")
    .Input("labels: num_labels * string")
    .Attr("tensor_name: string = ''")
    .Attr("pair_by_name: bool = false")
    .Attr("num_labels: int >= 0 = 0")
    .Attr("communicator: int >= 0 = 0")
    .Attr("eager: bool = false")
    .SetIsStateful()
    .SetIsDistributedCommunication()
    .SetShapeFn(::tensorflow::shape_inference::NoOutputs)
    .Doc(R"doc(
Finishes on no rank before every rank has started it.

labels: See SmddpAllreduce.
tensor_name: See SmddpBroadcast.
pair_by_name: See SmddpBroadcast.
communicator: The number of the communicator (process set) whose ranks take part; 0 is all ranks.
eager: See SmddpAllreduce.
)doc");

REGISTER_OP("SmddpOverlap")
    .Input("tensor: T")
    .Output("output: T")
    .Attr("T: type")
    .SetShapeFn(::tensorflow::shape_inference::UnchangedShape)
    .Doc(R"doc(
Returns its input, and keeps a compiler from joining the ops before it with the ops behind it.

Placed between layers, it lets the gradients of the later layers travel during the rest of the backward pass.

tensor: Any tensor.
output: The same tensor.
)doc");

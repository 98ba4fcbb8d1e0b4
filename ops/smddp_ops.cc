// The definitions of the ops: signatures, shape functions and documentation. Not here: what they do
// (kernels/tf).
//
// All ops that communicate are stateful: a constant input must not be folded, and equal ops must not be
// merged. Automatic control dependencies leave those with a ticket unordered, so that several run at once.
// The Python package reads from these definitions which ops communicate (SetIsDistributedCommunication),
// which ones take a ticket (an input of that name), and which types they take.
#include "ops/shape_functions.h"
#include "ops/type_list.h"
#include "tensorflow/core/framework/common_shape_fns.h"
#include "tensorflow/core/framework/op.h"

#define TF_SMDDP_REDUCE_OPS "{'sum', 'average', 'min', 'max', 'product'}"

REGISTER_OP("SmddpTicket")
    .Output("ticket: int64")
    .Attr("communicator: int >= 0 = 0")
    .Attr("eager: bool = false")
    .SetIsStateful()
    .SetShapeFn(::tensorflow::shape_inference::ScalarShape)
    .Doc(R"doc(
Draws the ticket of the next group of tensors.

Tickets count up on each rank. All tensors of one execution of a group carry the same ticket, and the ranks' groups
meet by it. Stateful, so that automatic control dependencies draw tickets in program order.

ticket: The number of this execution.
communicator: The ranks among which the group meets; 0 is all of them.
eager: Executed eagerly, and no part of a step. (TensorFlow gives eager ops step numbers, too.)
)doc");

REGISTER_OP("SmddpStepMark")
    .Output("ticket: int64")
    .Attr("communicator: int >= 0 = 0")
    .SetIsStateful()
    .SetShapeFn(::tensorflow::shape_inference::ScalarShape)
    .Doc(R"doc(
Stands in for a ticket in graphs without program order, whose ops pair by name.

It runs when the step begins. When the step fails from then on, the other ranks are told.

ticket: -1.
communicator: The ranks among which the step's collectives meet.
)doc");

REGISTER_OP("SmddpChain")
    .Output("chain: resource")
    .Attr("hand_back: bool = true")
    .SetIsStateful()
    // The resource has no shape of contents, as a variable has. So TensorFlow looks for no gradient of it.
    .SetShapeFn(::tensorflow::shape_inference::ScalarShape)
    .Doc(R"doc(
Stands for the order of the collectives in a function that XLA compiles.

A loop or a branch that takes it as an input stands in that order, with the collectives in it. It has a value while
XLA compiles, and none when anything runs.

chain: The same for all of these ops in one computation.
hand_back: Not in a loop's condition, which may change no resource: an op there says so, before all others of ours.
)doc");

REGISTER_OP("SmddpAllreduce")
    .Input("tensor: T")
    .Input("ticket: int64")
    .Input("factors: num_factors * double")
    .Input("labels: num_labels * string")
    .Output("output: T")
    .Attr("T: " TF_SMDDP_TYPES)
    .Attr("reduce_op: " TF_SMDDP_REDUCE_OPS)
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

tensor: This rank's part; the same type and shape on all ranks.
ticket: A scalar from SmddpTicket, shared by the tensors of one group; -1 pairs by name instead, as graphs without
  program order need: the n-th execution under a name meets the n-th under that name on the other ranks.
factors: Nothing, or one vector of two numbers, for floating and complex types: each rank's elements are multiplied by
  the first one before the reduction, and the result by the second one. XLA must know them when it compiles the op.
labels: Nothing, or one vector of strings to be used in place of the names below: for eager execution, where TensorFlow
  would keep a kernel for each new attribute.
output: The reduction, bitwise the same on all ranks.
reduce_op: How elements are combined. bool has 'min' (and) and 'max' (or) only; complex numbers have neither.
param_index: Which tensor of the group this is, from 0.
num_params: How many tensors the group has.
tensor_name: For messages and for pairing by name; the node's name when it is empty.
communicator: The ranks that take part; 0 is all of them.
eager: As for SmddpTicket.
)doc");

REGISTER_OP("SmddpGroupedAllreduce")
    .Input("tensors: T")
    .Input("ticket: int64")
    .Input("factors: num_factors * double")
    .Input("labels: num_labels * string")
    .Output("outputs: T")
    .Attr("T: list(" TF_SMDDP_TYPES ") >= 1")
    .Attr("reduce_op: " TF_SMDDP_REDUCE_OPS)
    .Attr("tensor_names: list(string) = []")
    .Attr("num_factors: int >= 0 = 0")
    .Attr("num_labels: int >= 0 = 0")
    .Attr("communicator: int >= 0 = 0")
    .Attr("eager: bool = false")
    .SetIsStateful()
    .SetIsDistributedCommunication()
    .SetShapeFn(::tf_smddp::SameShapes)
    .Doc(R"doc(
Reduces several tensors over all ranks as one group, in one op: for eager execution, which runs one op at a time.

tensors: This rank's parts; the same types and shapes, in the same order, on all ranks.
ticket: A scalar from SmddpTicket; -1 pairs by name (see SmddpAllreduce).
factors: As for SmddpAllreduce.
labels: As for SmddpAllreduce.
outputs: The reductions.
reduce_op: How elements are combined (see SmddpAllreduce).
tensor_names: One for each tensor, or none: for messages and for pairing by name.
communicator: The ranks that take part; 0 is all of them.
eager: As for SmddpTicket.
)doc");

REGISTER_OP("SmddpOobAllreduce")
    .Input("tensors: T")
    .Input("labels: num_labels * string")
    .Output("outputs: T")
    .Attr("T: list(" TF_SMDDP_TYPES ") >= 1")
    .Attr("reduce_op: " TF_SMDDP_REDUCE_OPS)
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

It runs even where nobody uses its results, and in program order.

tensors: This rank's parts; the same types and shapes, in the same order, on all ranks.
labels: As for SmddpAllreduce.
outputs: The reductions.
reduce_op: How elements are combined (see SmddpAllreduce).
param_index: Which of the tensors that are reduced together the first one here is, from 0.
num_params: How many those are, in this op and others. Both must be the same on all ranks.
tensor_names: One for each tensor, or none: for messages and for pairing by name.
pair_by_name: Pairs the n-th execution under a name, for graphs without program order. Else the n-th tensor that a
  rank reduces out of band meets the n-th of the others.
communicator: The ranks that take part; 0 is all of them.
eager: As for SmddpTicket.
)doc");

REGISTER_OP("SmddpAllgather")
    .Input("tensors: T")
    .Input("ticket: int64")
    .Input("labels: num_labels * string")
    .Output("outputs: T")
    .Attr("T: list(" TF_SMDDP_TYPES ") >= 1")
    .Attr("tensor_names: list(string) = []")
    .Attr("num_labels: int >= 0 = 0")
    .Attr("communicator: int >= 0 = 0")
    .Attr("eager: bool = false")
    .SetIsStateful()
    .SetIsDistributedCommunication()
    .SetShapeFn(::tf_smddp::OtherRows)
    .Doc(R"doc(
Gives every rank the rows of all ranks' tensors, in the order of the ranks; for each tensor of a group.

tensors: This rank's rows; in the same order on all ranks, of types and shapes that are the same on all ranks, but for
  the first dimension.
ticket: A scalar from SmddpTicket; -1 pairs by name (see SmddpAllreduce).
labels: As for SmddpAllreduce.
outputs: All rows of each.
tensor_names: One for each tensor, or none: for messages and for pairing by name.
communicator: The ranks that take part; 0 is all of them.
eager: As for SmddpTicket.
)doc");

REGISTER_OP("SmddpReducescatter")
    .Input("tensors: T")
    .Input("ticket: int64")
    .Input("factors: num_factors * double")
    .Input("labels: num_labels * string")
    .Output("outputs: T")
    .Attr("T: list(" TF_SMDDP_TYPES ") >= 1")
    .Attr("reduce_op: " TF_SMDDP_REDUCE_OPS)
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

tensors: This rank's parts; the same types and shapes, in the same order, on all ranks.
ticket: A scalar from SmddpTicket; -1 pairs by name (see SmddpAllreduce).
factors: As for SmddpAllreduce.
labels: As for SmddpAllreduce.
outputs: This rank's rows of each reduction. The rows are split as evenly as possible: of r rows over n ranks, the
  first r mod n ranks get one more.
reduce_op: How elements are combined (see SmddpAllreduce).
tensor_names: One for each tensor, or none: for messages and for pairing by name.
communicator: The ranks that take part; 0 is all of them.
eager: As for SmddpTicket.
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
Sends some of the rows to each rank.

tensor: The rows for rank 0, then those for rank 1, and so on; type and shape are the same on all ranks, but for the
  first dimension.
splits: How many rows each rank gets; empty to split evenly.
ticket: A scalar from SmddpTicket; -1 pairs by name (see SmddpAllreduce).
labels: As for SmddpAllreduce.
output: The rows that this rank gets, in the order of the ranks that sent them.
received_splits: How many of them each rank has sent.
tensor_name: For messages and for pairing by name; the node's name when it is empty.
communicator: The ranks that take part; 0 is all of them.
eager: As for SmddpTicket.
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
Gives every rank the root's tensor.

tensor: The value on the root; elsewhere only its type and shape count, which must be the same.
labels: As for SmddpAllreduce.
output: The root's value.
root_rank: A rank of the job, also in a smaller communicator.
param_index: Which of several variables this is, from 0, if they are broadcast together.
num_params: How many they are. Both must be the same on all ranks.
tensor_name: For messages and for pairing by name; the node's name when it is empty.
pair_by_name: Pairs the n-th execution under a name, for graphs without program order. Else the n-th execution of
  all broadcasts and barriers of a rank meets the n-th of the others.
communicator: The ranks that take part; 0 is all of them.
eager: As for SmddpTicket.
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

labels: As for SmddpAllreduce.
tensor_name: For messages and for pairing by name; the node's name when it is empty.
pair_by_name: As for SmddpBroadcast.
communicator: The ranks that take part; 0 is all of them.
eager: As for SmddpTicket.
)doc");

REGISTER_OP("SmddpOverlap")
    .Input("tensor: T")
    .Output("output: T")
    .Attr("T: type")
    .SetShapeFn(::tensorflow::shape_inference::UnchangedShape)
    .Doc(R"doc(
Hands a tensor on. Marks a place in the backward pass at which a compiler shall not join what is before and after.

tensor: Any tensor.
output: The same.
)doc");

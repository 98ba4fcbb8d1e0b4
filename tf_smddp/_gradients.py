"""The gradients of the ops, for models that communicate inside what they differentiate.

The loss of the job is the sum of all ranks' losses, so the gradient of what a rank put in is collected from
all ranks that used it. A gradient op is a collective of its own and draws its own ticket: ranks must
differentiate alike.
"""

from __future__ import annotations

from typing import Any, Dict, List, Optional, Sequence, Tuple

import tensorflow as tf

from tf_smddp import _compiled_order, _op_library, _runtime, _tickets
from tf_smddp._process_sets import process_set_of
from tf_smddp._reduce_op import ReduceOp
from tf_smddp._scaling import NONE, Scaling


@tf.RegisterGradient("SmddpAllreduce")
def _allreduce_gradient(op: tf.Operation, grad: Any) -> List[Optional[tf.Tensor]]:
    reduced = _reduce(op, grad, _differentiable(op), "SmddpAllreduceGrad", _scaling_of(op))
    return _at([0], [reduced], len(op.inputs))


@tf.RegisterGradient("SmddpGroupedAllreduce")
@tf.RegisterGradient("SmddpOobAllreduce")
def _grouped_allreduce_gradient(op: tf.Operation, *grads: Any) -> List[Optional[tf.Tensor]]:
    reduce_op = _differentiable(op)
    positions, dense = _dense(op, grads)
    if not dense:
        return [None] * len(op.inputs)
    reduced = _op_library.grouped_allreduce(
        dense,
        _draw_ticket(op, dense),
        reduce_op,
        communicator=_communicator(op),
        scaling=_scaling_of(op),
        **_names("SmddpAllreduceGrad", positions),
    )
    return _at(positions, reduced, len(op.inputs))


@tf.RegisterGradient("SmddpAllgather")
def _allgather_gradient(op: tf.Operation, *grads: Any) -> List[Optional[tf.Tensor]]:
    positions, dense = _dense(op, grads)
    if not dense:
        return [None] * len(op.inputs)
    return _at(positions, _own_rows(op, positions, dense), len(op.inputs))


@tf.RegisterGradient("SmddpReducescatter")
def _reducescatter_gradient(op: tf.Operation, *grads: Any) -> List[Optional[tf.Tensor]]:
    _differentiable(op)
    positions, dense = _dense(op, grads)
    if not dense:
        return [None] * len(op.inputs)
    scaled = [_scaled(op, grad) for grad in dense]
    if _op_library.in_xla_context() or _is_compiled(op):
        return _at(positions, _all_rows(op, positions, scaled), len(op.inputs))
    gathered = _op_library.allgather(
        scaled,
        _draw_ticket(op, scaled),
        communicator=_communicator(op),
        **_names("SmddpReducescatterGrad", positions),
    )
    return _at(positions, gathered, len(op.inputs))


@tf.RegisterGradient("SmddpOverlap")
def _overlap_gradient(_: tf.Operation, grad: Any) -> tf.Tensor:
    return _op_library.overlap(tf.convert_to_tensor(grad))


@tf.RegisterGradient("SmddpAlltoall")
def _alltoall_gradient(op: tf.Operation, grad: Any, _: Any) -> List[Optional[tf.Tensor]]:
    dense = tf.convert_to_tensor(grad)
    tensor_name, node_name = _tickets.names(None, "SmddpAlltoallGrad")
    ticket = _draw_ticket(op, [dense])
    # As many to each rank as from it; where the other is no constant to XLA.
    evenly = _is_compiled(op) and op.inputs[1].shape.as_list() == [0]
    received = op.inputs[1] if evenly else op.outputs[1]
    back, _ = _op_library.alltoall(dense, received, ticket, tensor_name, node_name, _communicator(op))
    return _at([0], [back], len(op.inputs))


@tf.RegisterGradient("SmddpBroadcast")
def _broadcast_gradient(op: tf.Operation, grad: Any) -> List[Optional[tf.Tensor]]:
    reduced = _reduce(op, grad, ReduceOp.SUM, "SmddpBroadcastGrad")
    if _runtime.rank() != op.get_attr("root_rank"):
        # The zeros must still depend on the reduction, else it is pruned here and the root waits for it;
        # likewise for their gradient, in a second derivative.
        reduced = tf.math.multiply_no_nan(reduced, tf.zeros([], reduced.dtype))
    return _at([0], [reduced], len(op.inputs))


def _own_rows(op: tf.Operation, positions: Sequence[int], grads: Sequence[tf.Tensor]) -> List[tf.Tensor]:
    """Of the sums of all ranks' gradients, the rows that this rank put in.

    Where they lie depends on the other ranks' rows, which the forward op does not say; so the ranks tell each
    other first; but in a function that XLA compiles, where all have the same number, as the forward op has
    checked. Then each gradient is reduced whole and cut. An alltoall of the rows would move half of that, but
    would leave the sum to TensorFlow, which rounds 16-bit floats once for each rank.
    """
    communicator = _communicator(op)
    own = tf.stack([tf.shape(op.inputs[i], out_type=tf.int64)[0] for i in positions])
    rank = process_set_of(communicator).rank()
    if _is_compiled(op):
        before = own * rank
    else:
        rows_name, rows_node = _tickets.names(None, "SmddpAllgatherGradRows")
        ticket = _draw_ticket(op, grads)
        rows = _op_library.allgather([own[tf.newaxis]], ticket, [rows_name], rows_node, communicator)[0]
        before = tf.reduce_sum(rows[:rank], axis=0)
    summed = _op_library.grouped_allreduce(
        grads,
        _draw_ticket(op, grads),
        ReduceOp.SUM,
        communicator=communicator,
        **_names("SmddpAllgatherGrad", positions),
    )
    return [
        _cut(total, before[i], op.inputs[position])
        for i, (position, total) in enumerate(zip(positions, summed))
    ]


def _cut(total: tf.Tensor, first: tf.Tensor, like: tf.Tensor) -> tf.Tensor:
    """As many rows as `like` has, from `first` on. XLA need not know that one beforehand."""
    others = tf.zeros([tf.rank(like) - 1], tf.int64)
    return tf.slice(total, tf.concat([[first], others], axis=0), tf.shape(like, out_type=tf.int64))


def _all_rows(op: tf.Operation, positions: Sequence[int], grads: Sequence[tf.Tensor]) -> List[tf.Tensor]:
    """All ranks' rows of what a reduce-scatter has shared out, in a function that XLA compiles.

    XLA's allgather takes the same number of rows from each rank, and these may differ by one. So each rank
    puts its own between zeros, and all add theirs up.
    """
    process_set = process_set_of(_communicator(op))
    rank, size = process_set.rank(), process_set.size()
    padded = []
    for i, grad in zip(positions, grads):
        rows = tf.shape(op.inputs[i])[0]
        before = rank * (rows // size) + tf.minimum(rank, rows % size)
        after = rows - before - tf.shape(grad)[0]
        others = tf.zeros([tf.rank(grad) - 1, 2], tf.int32)
        padded.append(tf.pad(grad, tf.concat([[[before, after]], others], axis=0)))
    return _op_library.grouped_allreduce(
        padded,
        _draw_ticket(op, padded),
        ReduceOp.SUM,
        communicator=_communicator(op),
        **_names("SmddpReducescatterGrad", positions),
    )


def _is_compiled(op: tf.Operation) -> bool:
    """Whether XLA has compiled `op`, and compiles its gradient: then neither has dynamic shapes."""
    if not tf.is_symbolic_tensor(op.inputs[0]):  # it ran in eager mode, with whatever the others had
        return False
    return _op_library.in_xla_context() or _in_compiled_function(op)


def _in_compiled_function(op: tf.Operation) -> bool:
    """Whether `op` is in a graph, and that is a compiled function's.

    The backward graph of one that is differentiated from outside does not say so itself.
    """
    return tf.is_symbolic_tensor(op.outputs[0]) and _compiled_order.was_compiled(op.outputs[0].graph)


def _scaled(op: tf.Operation, grad: tf.Tensor) -> tf.Tensor:
    """The gradient of a reduce-scatter's result, as the sum of what went into it sees it."""
    if _differentiable(op) is ReduceOp.AVERAGE:
        grad = grad / tf.cast(process_set_of(_communicator(op)).size(), grad.dtype)
    factors = _scaling_of(op)
    factor = factors.prescale * factors.postscale
    return grad if factor == 1.0 else grad * tf.constant(factor, grad.dtype)


def _differentiable(op: tf.Operation) -> ReduceOp:
    """The op's ReduceOp, if it has a gradient; else raises what TensorFlow does for ops without one."""
    reduce_op = ReduceOp(tf.compat.as_str(op.get_attr("reduce_op")))
    if reduce_op not in (ReduceOp.SUM, ReduceOp.AVERAGE):
        raise LookupError(
            f"The gradient of a reduction with ReduceOp.{reduce_op.name} is not defined, only with SUM and "
            "AVERAGE. Put tf.stop_gradient around its input if it is not to be differentiated."
        )
    return reduce_op


def _reduce(
    op: tf.Operation, grad: Any, reduce_op: ReduceOp, default_name: str, factors: Scaling = NONE
) -> tf.Tensor:
    """Reduces one gradient, as a group of its own."""
    dense = tf.convert_to_tensor(grad)
    tensor_name, node_name = _tickets.names(None, default_name)
    ticket = _draw_ticket(op, [dense])
    return _op_library.allreduce(
        dense, ticket, reduce_op, 0, 1, tensor_name, node_name, _communicator(op), factors
    )


def _dense(op: tf.Operation, grads: Sequence[Any]) -> Tuple[List[int], List[tf.Tensor]]:
    """The outputs that can have a gradient, and those.

    One that the target does not depend on counts with zeros: which ones those are may differ by rank.
    """
    outputs = list(op.outputs)
    positions = [i for i, output in enumerate(outputs) if output.dtype.is_floating or output.dtype.is_complex]
    return positions, [
        tf.zeros_like(outputs[i]) if grads[i] is None else tf.convert_to_tensor(grads[i]) for i in positions
    ]


def _at(positions: Sequence[int], grads: Sequence[tf.Tensor], count: int) -> List[Optional[tf.Tensor]]:
    """One gradient for each input of the op; none for the ticket and what follows it."""
    results: List[Optional[tf.Tensor]] = [None] * count
    for i, grad in zip(positions, grads):
        results[i] = grad
    return results


def _names(default: str, positions: Sequence[int]) -> Dict[str, Any]:
    """What the tensors and the node are called, as arguments of what emits the op."""
    tensor_name, node_name = _tickets.names(None, default)
    return {"tensor_names": [f"{tensor_name or default}/{i}" for i in positions], "name": node_name}


def _communicator(op: tf.Operation) -> int:
    return int(op.get_attr("communicator"))


def _scaling_of(op: tf.Operation) -> Scaling:
    # A constant: the op was made with it (_op_library.py).
    given = [
        tf.get_static_value(tensor) for tensor in op.inputs[len(op.outputs) :] if tensor.dtype == tf.float64
    ]
    return Scaling(*map(float, given[0])) if given else NONE


def _draw_ticket(op: tf.Operation, grads: Sequence[tf.Tensor]) -> tf.Tensor:
    """Draws the ticket for the gradient of `op`.

    TensorFlow keeps no program order in the backward graph that it builds for a function which is
    differentiated from outside, and so none between the functions, branches and loops that the graph calls.
    There the tickets follow the order of the data. Elsewhere they don't wait for the gradients: later groups
    would have to wait with them.
    """
    communicator = _communicator(op)
    if tf.executing_eagerly():
        return _tickets.draw_ticket(communicator)
    graph = tf.compat.v1.get_default_graph()
    if _in_compiled_function(op):
        _compiled_order.mark(graph)
    # A tape's record of an op has no graph of its own, only its tensors have.
    here = getattr(op.outputs[0], "graph", None) is graph
    return _tickets.draw_ticket(communicator, after=() if here else grads)

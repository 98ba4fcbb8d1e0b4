"""The gradients of the ops, for models that reduce or broadcast inside what they differentiate.

The loss of the job is the sum of all ranks' losses, so the gradient of what a rank put in is collected from
all ranks that used it. A gradient op is a collective of its own and draws its own ticket: ranks must
differentiate alike.
"""

from __future__ import annotations

from typing import Any, List, Optional, Sequence, Tuple

import tensorflow as tf

from tf_smddp import _op_library, _runtime, _tickets
from tf_smddp._reduce_op import ReduceOp


@tf.RegisterGradient("SmddpAllreduce")
def _allreduce_gradient(op: tf.Operation, grad: Any) -> Tuple[tf.Tensor, None]:
    return _reduce(op, grad, _differentiable(op), "SmddpAllreduceGrad"), None


@tf.RegisterGradient("SmddpGroupedAllreduce")
def _grouped_allreduce_gradient(op: tf.Operation, *grads: Any) -> List[Optional[tf.Tensor]]:
    reduce_op = _differentiable(op)
    outputs = list(op.outputs)
    # An output that the target does not depend on counts with zeros: which ones those are may differ by rank.
    positions = [i for i, output in enumerate(outputs) if output.dtype.is_floating]
    dense = [
        tf.zeros_like(outputs[i]) if grads[i] is None else tf.convert_to_tensor(grads[i]) for i in positions
    ]
    results: List[Optional[tf.Tensor]] = [None] * (len(outputs) + 1)
    if dense:
        ticket = _draw_ticket(op, dense)
        tensor_names = [_tickets.names(None, "SmddpAllreduceGrad")[0] + f"/{i}" for i in positions]
        for i, reduced in zip(
            positions, _op_library.grouped_allreduce(dense, ticket, reduce_op, tensor_names)
        ):
            results[i] = reduced
    return results


@tf.RegisterGradient("SmddpBroadcast")
def _broadcast_gradient(op: tf.Operation, grad: Any) -> tf.Tensor:
    reduced = _reduce(op, grad, ReduceOp.SUM, "SmddpBroadcastGrad")
    if _runtime.rank() == op.get_attr("root_rank"):
        return reduced
    # The zeros must still depend on the reduction, else it is pruned here and the root waits for it.
    with tf.control_dependencies([reduced]):
        return tf.zeros_like(reduced)


def _differentiable(op: tf.Operation) -> ReduceOp:
    """The op's ReduceOp, if it has a gradient; else raises what TensorFlow does for ops without one."""
    reduce_op = ReduceOp(tf.compat.as_str(op.get_attr("reduce_op")))
    if reduce_op not in (ReduceOp.SUM, ReduceOp.AVERAGE):
        raise LookupError(
            f"The gradient of an allreduce with ReduceOp.{reduce_op.name} is not defined, only with SUM and "
            "AVERAGE. Put tf.stop_gradient around its input if it is not to be differentiated."
        )
    return reduce_op


def _reduce(op: tf.Operation, grad: Any, reduce_op: ReduceOp, default_name: str) -> tf.Tensor:
    """Reduces one gradient, as a group of its own."""
    dense = tf.convert_to_tensor(grad)
    tensor_name, node_name = _tickets.names(None, default_name)
    ticket = _draw_ticket(op, [dense])
    return _op_library.allreduce(dense, ticket, reduce_op, 0, 1, tensor_name, node_name)


def _draw_ticket(op: tf.Operation, grads: Sequence[tf.Tensor]) -> tf.Tensor:
    """Draws the ticket for the gradient of `op`.

    TensorFlow keeps no program order in the backward graph that it builds for a function which is
    differentiated from outside, and so none between the functions, branches and loops that the graph calls.
    There the tickets follow the order of the data. Elsewhere they don't wait for the gradients: later groups
    would have to wait with them.
    """
    if tf.executing_eagerly():
        return _tickets.draw_ticket()
    # A tape's record of an op has no graph of its own, only its tensors have.
    here = getattr(op.outputs[0], "graph", None) is tf.compat.v1.get_default_graph()
    return _tickets.draw_ticket(after=() if here else grads)

"""The shared part of the gradients of all collectives. A collective's own module has its gradient.

They are for models that communicate inside of what they differentiate. The loss of the job is the sum of all
ranks' losses, so the gradient of what a rank put in is collected from all ranks that used it. A gradient is a
collective of its own and draws its own ticket: ranks must differentiate alike.
"""

from __future__ import annotations

from typing import Any, Dict, List, Optional, Sequence, Tuple

import tensorflow as tf

from smddp import ReduceOp
from tf_smddp._collectives.scaling import NONE, Scaling
from tf_smddp._graphs import compiled_order, op_parts, tickets


def is_compiled(op: tf.Operation) -> bool:
    """Whether XLA has compiled `op`, and compiles its gradient: then neither has dynamic shapes."""
    if not tf.is_symbolic_tensor(op.inputs[0]):  # it ran in eager mode, with whatever the others had
        return False
    return op_parts.in_xla_context() or _in_compiled_function(op)


def _in_compiled_function(op: tf.Operation) -> bool:
    """Whether `op` is in a graph, and that is a compiled function's.

    The backward graph of one that is differentiated from outside does not say so itself.
    """
    return tf.is_symbolic_tensor(op.outputs[0]) and compiled_order.was_compiled(op.outputs[0].graph)


def differentiable(op: tf.Operation) -> ReduceOp:
    """The op's ReduceOp, if it has a gradient; else raises what TensorFlow does for ops without one."""
    reduce_op = ReduceOp(tf.compat.as_str(op.get_attr("reduce_op")))
    if reduce_op not in (ReduceOp.SUM, ReduceOp.AVERAGE):
        raise LookupError(
            f"The gradient of a reduction with ReduceOp.{reduce_op.name} is not defined, only with SUM and "
            "AVERAGE. Put tf.stop_gradient around its input if it is not to be differentiated."
        )
    return reduce_op


def compression_of(op: tf.Operation) -> str:
    """The op's `compression`."""
    return str(tf.compat.as_str(op.get_attr("compression")))


def dense(op: tf.Operation, grads: Sequence[Any]) -> Tuple[List[int], List[tf.Tensor]]:
    """The outputs that can have a gradient, and those.

    One that the target does not depend on counts with zeros: which ones those are may differ by rank.
    """
    outputs = list(op.outputs)
    positions = [i for i, output in enumerate(outputs) if output.dtype.is_floating or output.dtype.is_complex]
    return positions, [
        tf.zeros_like(outputs[i]) if grads[i] is None else tf.convert_to_tensor(grads[i]) for i in positions
    ]


def at_inputs(positions: Sequence[int], grads: Sequence[tf.Tensor], count: int) -> List[Optional[tf.Tensor]]:
    """One gradient for each input of the op; none for the ticket and what follows it."""
    results: List[Optional[tf.Tensor]] = [None] * count
    for i, grad in zip(positions, grads):
        results[i] = grad
    return results


def names(default: str, positions: Sequence[int]) -> Dict[str, Any]:
    """The names of a gradient's tensors and node, as arguments of the function that makes its op."""
    tensor_name, node_name = tickets.names(None, default)
    return {"tensor_names": [f"{tensor_name or default}/{i}" for i in positions], "name": node_name}


def communicator_of(op: tf.Operation) -> int:
    """The number of the communicator that the op uses."""
    return int(op.get_attr("communicator"))


def scaling_of(op: tf.Operation) -> Scaling:
    """The factors of a reduction."""
    # A constant: the op was made with it.
    given = [
        tf.get_static_value(tensor) for tensor in op.inputs[len(op.outputs) :] if tensor.dtype == tf.float64
    ]
    return Scaling(*map(float, given[0])) if given else NONE


def draw_ticket(op: tf.Operation, grads: Sequence[tf.Tensor]) -> tf.Tensor:
    """Draws the ticket for the gradient of `op`.

    TensorFlow keeps no program order in the backward graph that it builds for a function which is
    differentiated from outside, and so none between the functions, branches and loops that the graph calls.
    There the tickets follow the order of the data. Elsewhere they don't wait for the gradients: later groups
    would have to wait with them.
    """
    communicator = communicator_of(op)
    if tf.executing_eagerly():
        return tickets.draw_ticket(communicator)
    graph = tf.compat.v1.get_default_graph()
    if _in_compiled_function(op):
        compiled_order.mark(graph)
    # A tape's record of an op has no graph of its own, only its tensors have.
    here = getattr(op.outputs[0], "graph", None) is graph
    return tickets.draw_ticket(communicator, after=() if here else grads)

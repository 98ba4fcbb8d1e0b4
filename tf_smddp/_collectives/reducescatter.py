"""reducescatter and grouped_reducescatter: combine tensors over all ranks, and give each rank a part."""

from __future__ import annotations

import functools
from typing import Any, List, Optional, Sequence

import tensorflow as tf

from smddp.process_sets import ProcessSet, communicator_of, process_set_of
from smddp.requests import ReduceOp, resolve_reduce_op
from tf_smddp._base.arguments import to_rows
from tf_smddp._collectives import op_gradients
from tf_smddp._collectives.allgather import allgather_op
from tf_smddp._collectives.allreduce import (
    check_list,
    check_reducible,
    grouped_allreduce_op,
    member_names,
    reduction_op,
)
from tf_smddp._collectives.scaling import scaling
from tf_smddp._graphs import op_parts, tickets
from tf_smddp._graphs.call_site import check_call_site
from tf_smddp._guards import gradient_use

reducescatter_op = functools.partial(reduction_op, op_parts.ops.smddp_reducescatter)


def reducescatter(
    tensor: Any,
    op: Optional[ReduceOp] = ReduceOp.AVERAGE,
    name: Optional[str] = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: Optional[ProcessSet] = None,
) -> tf.Tensor:
    """Combines a tensor over all ranks; each rank gets some rows of the result.

    Collective: every rank must call this, in the same order as its other collectives. In a `tf.function` the
    result must be used, as that of `allreduce`. It can be differentiated for SUM and AVERAGE: the gradients
    of all ranks' rows are put together, and scaled as the result was.

    Args:
        tensor: as in `allreduce`, with at least one dimension.
        op: as in `allreduce`.
        name: as in `allreduce`.
        prescale_factor: as in `allreduce`.
        postscale_factor: as in `allreduce`.
        process_set: as in `allreduce`.

    Returns:
        This rank's rows of the result. They are split as evenly as possible, in the order of the ranks: of r
        rows over n ranks, the first r mod n ranks get one more.

    Raises:
        ValueError: the tensor is a scalar.
    """
    check_call_site("reducescatter")
    reduce_op = resolve_reduce_op(op)
    factors = scaling(prescale_factor, postscale_factor, "reducescatter")
    communicator = communicator_of(process_set, "reducescatter")
    rows = to_rows(tensor, "reducescatter")
    check_reducible(rows, reduce_op, factors, "reducescatter")
    gradient_use.note_users([rows], reduce_op)
    tensor_name, node_name = tickets.names(name, "SmddpReducescatter")
    return reducescatter_op(
        [rows], tickets.draw_ticket(communicator), reduce_op, [tensor_name], node_name, communicator, factors
    )[0]


def grouped_reducescatter(
    tensors: Sequence[Any],
    op: Optional[ReduceOp] = ReduceOp.AVERAGE,
    name: Optional[str] = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: Optional[ProcessSet] = None,
) -> List[tf.Tensor]:
    """As `reducescatter` for each of the tensors, all at once.

    Collective: every rank must call this, with the same number of tensors, which may be 0, in the same order.
    Tensor number i is called "name/i". All else is as in `reducescatter`.

    Returns:
        This rank's rows of each result, in the same order.
    """
    check_call_site("grouped_reducescatter")
    reduce_op = resolve_reduce_op(op)
    factors = scaling(prescale_factor, postscale_factor, "grouped_reducescatter")
    communicator = communicator_of(process_set, "grouped_reducescatter")
    rows = [
        to_rows(tensor, "grouped_reducescatter") for tensor in check_list(tensors, "grouped_reducescatter")
    ]
    for tensor in rows:
        check_reducible(tensor, reduce_op, factors, "grouped_reducescatter")
    gradient_use.note_users(rows, reduce_op)
    if not rows:
        return []
    tensor_name, node_name = tickets.names(name, "SmddpReducescatter")
    return reducescatter_op(
        rows,
        tickets.draw_ticket(communicator),
        reduce_op,
        member_names(tensor_name, len(rows)),
        node_name,
        communicator,
        factors,
    )


@tf.RegisterGradient("SmddpReducescatter")
def _reducescatter_gradient(op: tf.Operation, *grads: Any) -> List[Optional[tf.Tensor]]:
    op_gradients.differentiable(op)
    positions, dense = op_gradients.dense(op, grads)
    if not dense:
        return [None] * len(op.inputs)
    scaled = [_scaled(op, grad) for grad in dense]
    if op_parts.in_xla_context() or op_gradients.is_compiled(op):
        return op_gradients.at_inputs(positions, _all_rows(op, positions, scaled), len(op.inputs))
    gathered = allgather_op(
        scaled,
        op_gradients.draw_ticket(op, scaled),
        communicator=op_gradients.communicator_of(op),
        **op_gradients.names("SmddpReducescatterGrad", positions),
    )
    return op_gradients.at_inputs(positions, gathered, len(op.inputs))


def _all_rows(op: tf.Operation, positions: Sequence[int], grads: Sequence[tf.Tensor]) -> List[tf.Tensor]:
    """All ranks' rows of what a reduce-scatter has shared out, in a function that XLA compiles.

    XLA's allgather takes the same number of rows from each rank, and these may differ by one. So each rank
    puts its own between zeros, and all add theirs up.
    """
    process_set = process_set_of(op_gradients.communicator_of(op))
    rank, size = process_set.rank(), process_set.size()
    padded = []
    for i, grad in zip(positions, grads):
        rows = tf.shape(op.inputs[i])[0]
        before = rank * (rows // size) + tf.minimum(rank, rows % size)
        after = rows - before - tf.shape(grad)[0]
        others = tf.zeros([tf.rank(grad) - 1, 2], tf.int32)
        padded.append(tf.pad(grad, tf.concat([[[before, after]], others], axis=0)))
    return grouped_allreduce_op(
        padded,
        op_gradients.draw_ticket(op, padded),
        ReduceOp.SUM,
        communicator=op_gradients.communicator_of(op),
        **op_gradients.names("SmddpReducescatterGrad", positions),
    )


def _scaled(op: tf.Operation, grad: tf.Tensor) -> tf.Tensor:
    """The gradient of a reduce-scatter's result, as the sum of what went into it sees it."""
    if op_gradients.differentiable(op) is ReduceOp.AVERAGE:
        grad = grad / tf.cast(process_set_of(op_gradients.communicator_of(op)).size(), grad.dtype)
    factors = op_gradients.scaling_of(op)
    factor = factors.prescale * factors.postscale
    return grad if factor == 1.0 else grad * tf.constant(factor, grad.dtype)

"""allgather and grouped_allgather: give every rank the rows of all ranks."""

from __future__ import annotations

from typing import Any, List, Optional, Sequence

import tensorflow as tf

from smddp import ReduceOp
from smddp.process_sets import ProcessSet, communicator_of, process_set_of
from tf_smddp._base.arguments import to_rows
from tf_smddp._collectives import op_gradients
from tf_smddp._collectives.allreduce import check_list, grouped_allreduce_op, member_names
from tf_smddp._graphs import op_parts, tickets
from tf_smddp._graphs.call_site import check_call_site


def allgather(tensor: Any, name: Optional[str] = None, process_set: Optional[ProcessSet] = None) -> tf.Tensor:
    """Puts the tensors of all ranks together along the first dimension, in the order of the ranks.

    Collective: every rank must call this, in the same order as its other collectives. In a `tf.function` the
    result must be used, as that of `allreduce`. It can be differentiated: a rank's gradient is the sum, over
    all ranks, of what they have for its rows.

    Args:
        tensor: this rank's rows, of a type as in `allreduce`. Type and shape are the same on all ranks, but
            for the first dimension, which may be anything, 0 too. A scalar counts as one row.
        name: as in `allreduce`.
        process_set: as in `allreduce`.

    Returns:
        All rows, the same on all ranks.
    """
    check_call_site("allgather")
    communicator = communicator_of(process_set, "allgather")
    rows = to_rows(tensor, "allgather", scalar_is_a_row=True)
    tensor_name, node_name = tickets.names(name, "SmddpAllgather")
    return allgather_op([rows], tickets.draw_ticket(communicator), [tensor_name], node_name, communicator)[0]


def grouped_allgather(
    tensors: Sequence[Any], name: Optional[str] = None, process_set: Optional[ProcessSet] = None
) -> List[tf.Tensor]:
    """As `allgather` for each of the tensors, all at once.

    Collective: every rank must call this, with the same number of tensors, which may be 0, in the same order.
    Tensor number i is called "name/i". All else is as in `allgather`.

    Returns:
        All rows of each, in the same order.
    """
    check_call_site("grouped_allgather")
    communicator = communicator_of(process_set, "grouped_allgather")
    rows = [
        to_rows(tensor, "grouped_allgather", scalar_is_a_row=True)
        for tensor in check_list(tensors, "grouped_allgather")
    ]
    if not rows:
        return []
    tensor_name, node_name = tickets.names(name, "SmddpAllgather")
    return allgather_op(
        rows,
        tickets.draw_ticket(communicator),
        member_names(tensor_name, len(rows)),
        node_name,
        communicator,
    )


@op_parts.placed
def allgather_op(
    tensors: Sequence[tf.Tensor],
    group_ticket: tf.Tensor,
    tensor_names: Sequence[str],
    name: Optional[str] = None,
    communicator: int = 0,
    **attributes: int,
) -> List[tf.Tensor]:
    """Emits one SmddpAllgather, for a whole group if there are no `attributes`."""
    return list(
        op_parts.ops.smddp_allgather(
            tensors=list(tensors),
            ticket=group_ticket,
            **op_parts.labels(tensor_names),
            communicator=communicator,
            eager=tf.executing_eagerly(),
            name=name,
            **attributes,
        )
    )


@tf.RegisterGradient("SmddpAllgather")
def _allgather_gradient(op: tf.Operation, *grads: Any) -> List[Optional[tf.Tensor]]:
    positions, dense = op_gradients.dense(op, grads)
    if not dense:
        return [None] * len(op.inputs)
    return op_gradients.at_inputs(positions, _own_rows(op, positions, dense), len(op.inputs))


def _own_rows(op: tf.Operation, positions: Sequence[int], grads: Sequence[tf.Tensor]) -> List[tf.Tensor]:
    """The rows that this rank put in, of the sums of all ranks' gradients.

    Their place depends on how many rows the other ranks have, which the forward op does not say. So the ranks
    gather their numbers of rows first. In a function that XLA compiles all ranks have the same number, which
    the forward op has checked. Then each gradient is reduced as a whole, and this rank's rows are cut out. An
    alltoall of the rows would move half of that, but would leave the sum to TensorFlow, which rounds 16-bit
    floats once for each rank.
    """
    communicator = op_gradients.communicator_of(op)
    own = tf.stack([tf.shape(op.inputs[i], out_type=tf.int64)[0] for i in positions])
    rank = process_set_of(communicator).rank()
    if op_gradients.is_compiled(op):
        before = own * rank
    else:
        rows_name, rows_node = tickets.names(None, "SmddpAllgatherGradRows")
        ticket = op_gradients.draw_ticket(op, grads)
        rows = allgather_op([own[tf.newaxis]], ticket, [rows_name], rows_node, communicator)[0]
        before = tf.reduce_sum(rows[:rank], axis=0)
    summed = grouped_allreduce_op(
        grads,
        op_gradients.draw_ticket(op, grads),
        ReduceOp.SUM,
        communicator=communicator,
        **op_gradients.names("SmddpAllgatherGrad", positions),
    )
    return [
        _cut(total, before[i], op.inputs[position])
        for i, (position, total) in enumerate(zip(positions, summed))
    ]


def _cut(total: tf.Tensor, first: tf.Tensor, like: tf.Tensor) -> tf.Tensor:
    """Returns rows of `total`: as many as `like` has, beginning with number `first`, a tensor."""
    others = tf.zeros([tf.rank(like) - 1], tf.int64)
    return tf.slice(total, tf.concat([[first], others], axis=0), tf.shape(like, out_type=tf.int64))

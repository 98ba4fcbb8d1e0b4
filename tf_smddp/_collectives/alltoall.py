"""alltoall: sends some rows to each rank."""

from __future__ import annotations

import contextlib
from typing import Any, List, Optional, Tuple, Union

import numpy as np
import tensorflow as tf

from smddp.process_sets import ProcessSet, communicator_of, ranks_of
from tf_smddp._base.arguments import to_rows, to_tensor
from tf_smddp._collectives import op_gradients
from tf_smddp._graphs import op_parts, tickets
from tf_smddp._graphs.call_site import check_call_site


def alltoall(
    tensor: Any,
    splits: Any = None,
    name: Optional[str] = None,
    process_set: Optional[ProcessSet] = None,
) -> Union[tf.Tensor, Tuple[tf.Tensor, tf.Tensor]]:
    """Sends the tensor's first rows to the first rank, the next ones to the second, and so on.

    Collective: every rank must call this, in the same order as its other collectives. In a `tf.function` the
    result must be used, as that of `allreduce`. It can be differentiated: the gradient of each row goes back
    to where the row came from.

    Args:
        tensor: the rows to send, of a type as in `allreduce`, with at least one dimension. Type and shape are
            the same on all ranks, but for the first dimension.
        splits: how many rows go to each rank: a vector of integers, one for each rank that takes part, which
            add up to the tensor's rows; 0 is allowed. None splits evenly, and then the number of rows must be
            a multiple of the number of ranks.
        name: as in `allreduce`.
        process_set: as in `allreduce`.

    Returns:
        The rows that were sent to this rank, in the order of the ranks that sent them. With `splits`, a pair:
        those, and a vector of how many came from each rank (int64).

    Raises:
        ValueError: the tensor is a scalar, or the splits don't fit.
        tf.errors.InvalidArgumentError: the splits don't fit, where that is not known before.
    """
    check_call_site("alltoall")
    communicator = communicator_of(process_set, "alltoall")
    rows = to_rows(tensor, "alltoall")
    checked = _check_splits(splits, rows.shape, len(ranks_of(process_set)))
    tensor_name, node_name = tickets.names(name, "SmddpAlltoall")
    output, received = alltoall_op(
        rows, checked, tickets.draw_ticket(communicator), tensor_name, node_name, communicator
    )
    return output if splits is None else (output, received)


def _check_splits(splits: Any, shape: tf.TensorShape, ranks: int) -> tf.Tensor:
    """The splits as the op takes them; what can be checked before it runs is checked."""
    rows = shape[0] if shape.rank is not None else None
    if splits is None:
        if rows is not None and rows % ranks != 0:
            raise ValueError(
                f"alltoall() without splits needs a multiple of {ranks} rows, the number of ranks, but got "
                f"{rows}. Give splits."
            )
        return tf.constant([], tf.int64)
    vector = to_tensor(splits, "alltoall", "splits as a vector of integers")
    if not vector.dtype.is_integer:
        raise TypeError(f"alltoall() needs splits of integers, but got {splits!r}.")
    if not vector.shape.is_compatible_with([ranks]):
        raise ValueError(
            f"alltoall() needs splits with one number for each of the {ranks} ranks, but got {splits!r}."
        )
    known = tf.get_static_value(vector)
    if known is not None and (np.any(known < 0) or (rows is not None and np.sum(known) != rows)):
        raise ValueError(
            f"alltoall() needs splits that are not negative and add up to the tensor's "
            f"{'rows' if rows is None else f'{rows} rows'}, but got {known.tolist()}."
        )
    if vector.shape.rank is None or vector.shape[0] is None:
        vector = tf.ensure_shape(vector, [ranks])  # none at all would mean: evenly
    return tf.cast(vector, tf.int64)


@op_parts.placed
def alltoall_op(
    tensor: tf.Tensor,
    splits: tf.Tensor,
    group_ticket: tf.Tensor,
    tensor_name: str,
    name: str,
    communicator: int = 0,
) -> Tuple[tf.Tensor, tf.Tensor]:
    """Emits one SmddpAlltoall: (output, received splits). Without splits the rows are split evenly."""
    # In eager execution, an op with an output in the host's memory, as the received splits are, gets its
    # int32 inputs there, too. The kernel for GPUs wants the tensor on the device.
    with tf.device("CPU:0") if tensor.dtype == tf.int32 else contextlib.nullcontext():
        result = op_parts.ops.smddp_alltoall(
            tensor=tensor,
            splits=splits,
            ticket=group_ticket,
            **op_parts.one_label(tensor_name),
            communicator=communicator,
            eager=tf.executing_eagerly(),
            name=name,
        )
    return result.output, result.received_splits


@tf.RegisterGradient("SmddpAlltoall")
def _alltoall_gradient(op: tf.Operation, grad: Any, _: Any) -> List[Optional[tf.Tensor]]:
    dense = tf.convert_to_tensor(grad)
    tensor_name, node_name = tickets.names(None, "SmddpAlltoallGrad")
    ticket = op_gradients.draw_ticket(op, [dense])
    # Each row goes back to its rank. Even splits are given as such: the received ones are no constant to XLA.
    evenly = op_gradients.is_compiled(op) and op.inputs[1].shape.as_list() == [0]
    received = op.inputs[1] if evenly else op.outputs[1]
    back, _ = alltoall_op(dense, received, ticket, tensor_name, node_name, op_gradients.communicator_of(op))
    return op_gradients.at_inputs([0], [back], len(op.inputs))

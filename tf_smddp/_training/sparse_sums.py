"""Sums of sparse gradients (tf.IndexedSlices) as dense tensors, by the way that moves fewer bytes.

Either each rank makes its gradient dense, and the dense tensors are reduced, which moves the whole table. Or
the ranks gather the rows of all, and each adds them up in a dense tensor. The result is dense either way, so
that an optimizer does the same whatever the sizes are.

Ranks have different numbers of rows, and in each step, but all must go the same way. So they first add up
their numbers of rows, in one small allreduce for all tables of a step. It needs nothing of the backward pass.

Gathered rows are added one after the other, in the order of the ranks, and in float32 if they are of 16
bits. So all ranks have the same result, to the bit. It may differ from that of the other way in the last
bits, since there each rank's own rows are added first.
"""

from __future__ import annotations

from typing import Any, Sequence

import tensorflow as tf

from smddp import ReduceOp, runtime
from smddp.process_sets import process_set_of
from tf_smddp._collectives.allgather import allgather_op
from tf_smddp._collectives.allreduce import allreduce_group
from tf_smddp._collectives.compression import Compression, compressor_around_op
from tf_smddp._graphs import op_parts, tickets

# A smaller table is always made dense: to agree on the way would take longer than it may save.
LEAST_BYTES = 1 << 20
# Rows are gathered if those of all ranks, with their indices, have at most this part of the table's bytes.
_MOST_PART = 0.5


def can_choose(gradient: Any, compression: Any, reduce_op: ReduceOp, communicator: int) -> bool:
    """Whether there is a choice for this gradient. It depends on nothing that may differ between ranks.

    There is none on one host, where the ranks read each other's memory; in a function that XLA compiles,
    where all ranks must have as many rows; in v1 graphs; and where TensorFlow has GPUs, on which it adds rows
    up in any order.
    """
    return (
        isinstance(gradient, tf.IndexedSlices)
        and gradient.dtype.is_floating
        and _table_bytes(gradient) >= LEAST_BYTES
        and reduce_op in (ReduceOp.SUM, ReduceOp.AVERAGE)
        and compressor_around_op(compression) is Compression.none
        and process_set_of(communicator).size() > 1
        and on_several_hosts()
        and not op_parts.HAS_GPU_KERNELS
        and not tickets.pairs_by_name()
        and not op_parts.in_xla_context()
    )


def on_several_hosts() -> bool:
    """Whether the job has ranks on more than one host."""
    return runtime.local_size() < runtime.size()


def count_rows(gradients: Sequence[tf.IndexedSlices], caller: str, communicator: int) -> tf.Tensor:
    """Returns how many rows all ranks have together for each gradient, and how many ranks there are.

    Collective.

    Returns:
        An int64 vector, one longer than `gradients`. The last number is less than the size of the process set
        while ranks wait in join().
    """
    own = [tf.shape(gradient.indices, out_type=tf.int64)[0] for gradient in gradients]
    ones = tf.ones([], tf.int64)
    name = f"{caller}_Rows"
    return allreduce_group(
        [tf.stack([*own, ones])], [name], Compression.none, ReduceOp.SUM, name, communicator, caller=caller
    )[0]


def sum_sparse(
    gradient: tf.IndexedSlices,
    label: str,
    rows: tf.Tensor,
    ranks: tf.Tensor,
    compression: Any,
    reduce_op: ReduceOp,
    caller: str,
    communicator: int,
    meaning: str = "",
) -> tf.Tensor:
    """Returns the sum, or the average, of a gradient that can_choose() is true for. Collective.

    Args:
        gradient: this rank's.
        label: what error messages call it; may be empty.
        rows: how many rows all ranks have, from count_rows().
        ranks: how many ranks there are, from count_rows().
        compression: as in `reduce_gradients`.
        reduce_op: as there.
        caller: as there.
        communicator: as there.
        meaning: what the ranks compare (op_parts.gradient).
    """

    def gather() -> tf.Tensor:
        # Each is a group of its own, since a group of several tensors counts as a step in stats().
        values, indices = (
            allgather_op(
                [rows_of_rank],
                tickets.draw_ticket(communicator),
                [meaning + (f"{label}/{name}" if label else "")],
                f"{caller}_Allgather",
                communicator,
            )[0]
            for name, rows_of_rank in (
                ("values", tf.convert_to_tensor(gradient.values)),
                ("indices", tf.cast(gradient.indices, tf.int64)),
            )
        )
        if values.dtype.size < tf.float32.size:
            values = tf.cast(values, tf.float32)
        if reduce_op is ReduceOp.AVERAGE:
            values /= tf.cast(ranks, values.dtype)
        total = tf.math.unsorted_segment_sum(values, indices, gradient.shape[0])
        return tf.cast(total, gradient.dtype)

    def make_dense() -> tf.Tensor:
        return allreduce_group(
            [gradient],
            [label],
            compression,
            reduce_op,
            f"{caller}_Allreduce",
            communicator,
            caller=caller,
            meanings=[meaning],
        )[0]

    table = _table_bytes(gradient)
    row = table // gradient.shape[0] + tf.int64.size
    reduced = tf.cond(rows <= int(_MOST_PART * table) // row, gather, make_dense)
    return tf.ensure_shape(reduced, gradient.shape)


def _table_bytes(gradient: tf.IndexedSlices) -> int:
    """The bytes of the dense gradient; 0 if the shape is not known before the step."""
    count = None if gradient.dense_shape is None else gradient.shape.num_elements()
    return 0 if count is None else int(count) * int(gradient.dtype.size)

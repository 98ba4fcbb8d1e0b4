"""reduce_gradients: combines the gradients of one step, for DistributedGradientTape and DistributedOptimizer.

Dense gradients are one group. A sparse one (tf.IndexedSlices, from an embedding) becomes dense, before it is
reduced or on the way (sparse_sums.py). Or its rows are gathered from all ranks: then a row that several
ranks have comes several times, as it can within one rank. An optimizer treats that as it does with one rank
and the large batch.
"""

from __future__ import annotations

from typing import Any, List, Sequence

import tensorflow as tf

from smddp import WORLD, ReduceOp
from smddp.process_sets import process_set_of
from tf_smddp._base.arguments import check_dtype, source_label
from tf_smddp._collectives.allgather import allgather_op
from tf_smddp._collectives.allreduce import allreduce_group
from tf_smddp._collectives.compression import compressor_around_op
from tf_smddp._graphs import op_parts, tickets
from tf_smddp._guards import gpu_warnings, gradient_use
from tf_smddp._guards.start_weights import number_of_variable
from tf_smddp._training.sparse_sums import can_choose, count_rows, sum_sparse

# The caller that is tf_smddp.distribute.
IN_STRATEGY = "Strategy"


def reduce_gradients(
    gradients: Sequence[Any],
    sources: Sequence[Any],
    compression: Any,
    reduce_op: ReduceOp,
    sparse_as_dense: bool,
    caller: str,
    communicator: int = 0,
) -> List[Any]:
    """Reduces gradients over all ranks.

    Collective, unless all are None. The same ones must be None, and the same ones sparse, on all ranks. The
    ranks compare the places of those that are not None, and their variables where these have numbers.

    Args:
        gradients: tensors, tf.IndexedSlices, or None, which stays None.
        sources: of what they are gradients: variables, or anything else; the list may be shorter.
        compression: one of `Compression`'s, or a user's compressor.
        reduce_op: how to combine.
        sparse_as_dense: whether the results for tf.IndexedSlices are dense; else their rows are gathered.
        caller: the name of the user's class, for nodes and messages.
        communicator: the ranks that take part.

    Returns:
        The reductions in the same order.

    Raises:
        RuntimeError: tf_smddp.distribute.Strategy will reduce the gradients, too.
        ValueError: a sparse gradient is to be gathered, and `reduce_op` is neither SUM nor AVERAGE; or to be
            made dense, and has no dense_shape.
    """
    if caller != IN_STRATEGY and hasattr(tf.distribute.get_strategy(), "reduces_over_ranks"):
        raise RuntimeError(
            f"{caller} reduces gradients within tf_smddp.distribute.Strategy, which reduces them, too: they "
            f"would be reduced twice. Take away the {caller}, or the strategy."
        )
    gpu_warnings.warn_of_late_determinism()
    gradient_use.note_gradients(gradients, sources)
    labels = [source_label(source) for source in sources] + [""] * (len(gradients) - len(sources))
    numbers = [number_of_variable(source) if communicator == WORLD else 0 for source in sources]
    meanings = [op_parts.gradient(i, numbers[i] if i < len(numbers) else 0) for i in range(len(gradients))]
    reduced: List[Any] = [None] * len(gradients)
    sparse = [
        i
        for i, gradient in enumerate(gradients)
        if isinstance(gradient, tf.IndexedSlices) and not sparse_as_dense
    ]
    if sparse and reduce_op not in (ReduceOp.SUM, ReduceOp.AVERAGE):
        raise ValueError(
            f"{caller} got a sparse gradient ({labels[sparse[0]] or 'source'}, number {sparse[0]}) with "
            f"sparse_as_dense=False and ReduceOp.{reduce_op.name}: rows that are gathered can only be added "
            "up. Pass sparse_as_dense=True, or ReduceOp.SUM or AVERAGE."
        )
    summed = [
        i
        for i, gradient in enumerate(gradients)
        if i not in sparse and can_choose(gradient, compression, reduce_op, communicator)
    ]
    counts: Any = count_rows([gradients[i] for i in summed], caller, communicator) if summed else None
    dense = [
        i for i, gradient in enumerate(gradients) if gradient is not None and i not in (*sparse, *summed)
    ]
    results = allreduce_group(
        [gradients[i] for i in dense],
        [labels[i] for i in dense],
        compression,
        reduce_op,
        f"{caller}_Allreduce",
        communicator,
        caller=caller,
        meanings=[meanings[i] for i in dense],
    )
    for i, result in zip(dense, results):
        reduced[i] = result
    for k, i in enumerate(summed):
        reduced[i] = sum_sparse(
            gradients[i],
            labels[i],
            counts[k],
            counts[-1],
            compression,
            reduce_op,
            caller,
            communicator,
            meanings[i],
        )
    for i in sparse:
        reduced[i] = _gather(
            gradients[i], labels[i], compression, reduce_op, caller, communicator, meanings[i]
        )
    return reduced


def _gather(
    gradient: tf.IndexedSlices,
    label: str,
    compression: Any,
    reduce_op: ReduceOp,
    caller: str,
    communicator: int,
    meaning: str,
) -> tf.IndexedSlices:
    """Returns the rows of all ranks."""
    compressor = compressor_around_op(compression)
    values, context = compressor.compress(tf.convert_to_tensor(gradient.values))
    check_dtype(values, caller)
    name, node_name = tickets.names(None, f"{caller}_Allgather")
    tensors = [values, tf.convert_to_tensor(gradient.indices)]
    parts = ["values", "indices"]
    if gradient.dense_shape is not None:
        # It has no bytes. Ranks compare its width, so no rank adds rows to a table that does not have them.
        tensors.append(tf.zeros([0, gradient.dense_shape[0]], tf.uint8))
        parts.append("rows of the table")
    # A compiled function gathers from all ranks, or fails.
    count_ranks = reduce_op is ReduceOp.AVERAGE and not op_parts.in_xla_context()
    if count_ranks:
        tensors.append(tf.ones([1]))
        parts.append("ranks")
    values, indices, *others = allgather_op(
        tensors,
        tickets.draw_ticket(communicator),
        [meaning + (f"{name or label}/{part}" if name or label else "") for part in parts],
        node_name,
        communicator,
    )
    values = compressor.decompress(values, context)
    if reduce_op is ReduceOp.AVERAGE:
        # Less than the size of the set while ranks wait in join().
        count = tf.size(others[-1]) if count_ranks else process_set_of(communicator).size()
        values /= tf.cast(count, values.dtype)
    return tf.IndexedSlices(values, indices, gradient.dense_shape)

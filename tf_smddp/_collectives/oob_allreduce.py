"""oob_allreduce: combines losses and metrics over all ranks, beside the gradients."""

from __future__ import annotations

from typing import Any, List, Optional, Sequence

import tensorflow as tf

from smddp.process_sets import ProcessSet, communicator_of
from smddp.requests import ReduceOp, resolve_reduce_op
from tf_smddp._collectives.allreduce import (
    as_dense,
    check_reducible,
    grouped_allreduce_gradient,
    member_names,
)
from tf_smddp._collectives.compression import Compression, compressor_around_op, hint_of
from tf_smddp._collectives.scaling import NONE
from tf_smddp._graphs import op_parts, tickets
from tf_smddp._graphs.call_site import check_call_site


def oob_allreduce(
    tensor: Any,
    compression: Any = Compression.none,
    op: Optional[ReduceOp] = ReduceOp.AVERAGE,
    name: Optional[str] = None,
    process_set: Optional[ProcessSet] = None,
) -> Any:
    """Combines a loss or a metric over all ranks, out of band: with a sequence of its own.

    Collective: every rank must call this, in the same order as its other calls of it. It never shifts the
    order of the gradients, or of broadcasts. In a `tf.function` it runs on every rank even where its result
    is not used, so that rank 0 alone may log it. It can be differentiated for SUM and AVERAGE, as
    `allreduce`.

    Args:
        tensor: as in `allreduce`, such as a Python number. Or a structure of such (a list, a tuple, a dict),
            which is reduced all at once.
        compression: as in `allreduce`.
        op: as in `allreduce`. SMDDP had AVERAGE only.
        name: as in `allreduce`.
        process_set: as in `allreduce`.

    Returns:
        A dense tensor of the same shape and type: integers stay integers, and their average is cut towards
        zero. For a structure, the same structure of tensors.
    """
    check_call_site("oob_allreduce")
    reduce_op = resolve_reduce_op(op)
    communicator = communicator_of(process_set, "oob_allreduce")
    compressor = compressor_around_op(compression)
    flat = tf.nest.flatten(tensor)
    if not flat:
        return tensor
    compressed = [compressor.compress(as_dense(each, "oob_allreduce")) for each in flat]
    for each, _ in compressed:
        check_reducible(each, reduce_op, NONE, "oob_allreduce")
    tensor_name, node_name = tickets.names(name, "SmddpOobAllreduce")
    reduced = oob_allreduce_op(
        [each for each, _ in compressed],
        reduce_op,
        member_names(tensor_name, len(flat)),
        tickets.pairs_by_name(),
        node_name,
        communicator,
        hint_of(compression),
    )
    found = [compressor.decompress(each, context) for each, (_, context) in zip(reduced, compressed)]
    return tf.nest.pack_sequence_as(tensor, found)


def oob_allreduce_op(
    tensors: Sequence[tf.Tensor],
    reduce_op: ReduceOp,
    tensor_names: Sequence[str],
    pair_by_name: bool,
    name: Optional[str],
    communicator: int = 0,
    compression: str = "none",
) -> List[tf.Tensor]:
    """Emits one SmddpOobAllreduce; in eager mode one for each tensor.

    In eager mode each tensor stands for itself: when one fails, those after it must not have been submitted,
    or they would meet what comes next on the other ranks.
    """
    common = (pair_by_name, name, communicator, compression)
    if not tf.executing_eagerly():
        return _part_op(tensors, 0, len(tensors), reduce_op, tensor_names, *common)
    reduced: List[tf.Tensor] = []
    for i, tensor in enumerate(tensors):
        reduced += _part_op([tensor], i, len(tensors), reduce_op, tensor_names[i : i + 1], *common)
    return reduced


@op_parts.placed
def _part_op(
    tensors: Sequence[tf.Tensor],
    first: int,
    num_params: int,
    reduce_op: ReduceOp,
    tensor_names: Sequence[str],
    pair_by_name: bool,
    name: Optional[str],
    communicator: int,
    compression: str,
) -> List[tf.Tensor]:
    with op_parts.marked(pair_by_name, communicator):
        return op_parts.ops.smddp_oob_allreduce(
            tensors=list(tensors),
            reduce_op=reduce_op.value,
            compression=compression,
            param_index=first,
            num_params=num_params,
            **op_parts.labels(list(tensor_names)),
            pair_by_name=pair_by_name,
            communicator=communicator,
            eager=tf.executing_eagerly(),
            name=name,
        )


tf.RegisterGradient("SmddpOobAllreduce")(grouped_allreduce_gradient)

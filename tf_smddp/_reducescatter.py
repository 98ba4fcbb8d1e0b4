"""reducescatter and grouped_reducescatter: combine tensors over all ranks, and give each rank a part."""

from __future__ import annotations

from typing import Any, List, Optional, Sequence

import tensorflow as tf

from tf_smddp import _op_library, _tickets
from tf_smddp._allreduce import check_list, check_reducible, member_names
from tf_smddp._autograph import not_converted
from tf_smddp._call_site import check_call_site
from tf_smddp._process_sets import ProcessSet, communicator_of
from tf_smddp._reduce_op import ReduceOp, resolve_reduce_op
from tf_smddp._rows import to_rows
from tf_smddp._scaling import scaling


@not_converted
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
    result must be used, else TensorFlow prunes the op on this rank. It can be differentiated for SUM and
    AVERAGE: the gradients of all ranks' rows are put together, and scaled as the result was.

    Args:
        tensor: what to combine: a tensor or what becomes one, with at least one dimension, of the same type
            and shape on all ranks.
        op: how to combine; None is AVERAGE. Not all are defined for bool and complex types, see `ReduceOp`.
        name: a name for error messages and for the node. In a v1 graph tensors of different ranks meet by it;
            there the default is the node's name.
        prescale_factor: every rank's tensor is multiplied by it first; only floating and complex types.
        postscale_factor: the result is multiplied by it.
        process_set: the ranks that take part; None is all.

    Returns:
        This rank's rows of the result. They are split as evenly as possible, in the order of the ranks: of r
        rows over n ranks, the first r mod n ranks get one more.

    Raises:
        RuntimeError: before `init`, or in a function that tf.data runs.
        TypeError: an argument is of a wrong type, or the tensor's type is not supported.
        ValueError: the tensor is a scalar, `op` or a factor is not defined for the type, or this rank is
            not in `process_set`.
        tf.errors.InternalError, tf.errors.FailedPreconditionError: the ranks disagree, or one is gone;
            the text says which, and what to do.
    """
    check_call_site("reducescatter")
    reduce_op = resolve_reduce_op(op)
    factors = scaling(prescale_factor, postscale_factor, "reducescatter")
    communicator = communicator_of(process_set, "reducescatter")
    rows = to_rows(tensor, "reducescatter")
    check_reducible(rows, reduce_op, factors, "reducescatter")
    tensor_name, node_name = _tickets.names(name, "SmddpReducescatter")
    return _op_library.reducescatter(
        [rows], _tickets.draw_ticket(communicator), reduce_op, [tensor_name], node_name, communicator, factors
    )[0]


@not_converted
def grouped_reducescatter(
    tensors: Sequence[Any],
    op: Optional[ReduceOp] = ReduceOp.AVERAGE,
    name: Optional[str] = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: Optional[ProcessSet] = None,
) -> List[tf.Tensor]:
    """As `reducescatter` for each of the tensors, all at once.

    Collective: every rank must call this, with the same number of tensors in the same order.

    Args:
        tensors: a list of what `reducescatter` takes; may be empty.
        op: as in `reducescatter`.
        name: as in `reducescatter`; tensor number i is called "name/i".
        prescale_factor: as in `reducescatter`.
        postscale_factor: as in `reducescatter`.
        process_set: the ranks that take part; None is all.

    Returns:
        This rank's rows of each result, in the same order.

    Raises:
        RuntimeError, TypeError, ValueError, tf.errors.InternalError, tf.errors.FailedPreconditionError: as in
            `reducescatter`.
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
    if not rows:
        return []
    tensor_name, node_name = _tickets.names(name, "SmddpReducescatter")
    return _op_library.reducescatter(
        rows,
        _tickets.draw_ticket(communicator),
        reduce_op,
        member_names(tensor_name, len(rows)),
        node_name,
        communicator,
        factors,
    )

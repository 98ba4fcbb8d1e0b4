"""allgather and grouped_allgather: give every rank the rows of all ranks."""

from __future__ import annotations

from typing import Any, List, Optional, Sequence

import tensorflow as tf

from tf_smddp import _op_library, _tickets
from tf_smddp._allreduce import check_list, member_names
from tf_smddp._autograph import not_converted
from tf_smddp._call_site import check_call_site
from tf_smddp._process_sets import ProcessSet, communicator_of
from tf_smddp._rows import to_rows


@not_converted
def allgather(tensor: Any, name: Optional[str] = None, process_set: Optional[ProcessSet] = None) -> tf.Tensor:
    """Puts the tensors of all ranks together along the first dimension, in the order of the ranks.

    Collective: every rank must call this, in the same order as its other collectives. In a `tf.function` the
    result must be used, else TensorFlow prunes the op on this rank. It can be differentiated: a rank's
    gradient is the sum, over all ranks, of what they have for its rows.

    Args:
        tensor: this rank's rows: a tensor or what becomes one, of a floating, complex or integer type, or
            bool. Type and shape are the same on all ranks, but for the first dimension, which may be
            anything, 0 too. A scalar counts as one row.
        name: a name for error messages and for the node. In a v1 graph tensors of different ranks meet by it;
            there the default is the node's name.
        process_set: the ranks that take part; None is all.

    Returns:
        All rows, the same on all ranks.

    Raises:
        RuntimeError: before `init`, or in a function that tf.data runs.
        TypeError: the tensor's type is not supported.
        ValueError: this rank is not in `process_set`.
        tf.errors.InternalError, tf.errors.FailedPreconditionError: the ranks disagree, or one is gone;
            the text says which, and what to do.
    """
    check_call_site("allgather")
    communicator = communicator_of(process_set, "allgather")
    rows = to_rows(tensor, "allgather", scalar_is_a_row=True)
    tensor_name, node_name = _tickets.names(name, "SmddpAllgather")
    return _op_library.allgather(
        [rows], _tickets.draw_ticket(communicator), [tensor_name], node_name, communicator
    )[0]


@not_converted
def grouped_allgather(
    tensors: Sequence[Any], name: Optional[str] = None, process_set: Optional[ProcessSet] = None
) -> List[tf.Tensor]:
    """As `allgather` for each of the tensors, all at once.

    Collective: every rank must call this, with the same number of tensors in the same order.

    Args:
        tensors: a list of what `allgather` takes; may be empty.
        name: as in `allgather`; tensor number i is called "name/i".
        process_set: the ranks that take part; None is all.

    Returns:
        All rows of each, in the same order.

    Raises:
        RuntimeError, TypeError, ValueError, tf.errors.InternalError, tf.errors.FailedPreconditionError: as in
            `allgather`.
    """
    check_call_site("grouped_allgather")
    communicator = communicator_of(process_set, "grouped_allgather")
    rows = [
        to_rows(tensor, "grouped_allgather", scalar_is_a_row=True)
        for tensor in check_list(tensors, "grouped_allgather")
    ]
    if not rows:
        return []
    tensor_name, node_name = _tickets.names(name, "SmddpAllgather")
    return _op_library.allgather(
        rows,
        _tickets.draw_ticket(communicator),
        member_names(tensor_name, len(rows)),
        node_name,
        communicator,
    )

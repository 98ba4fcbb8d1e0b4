"""barrier: waits until every rank is there."""

from __future__ import annotations

from typing import Optional

import tensorflow as tf

from smddp.process_sets import ProcessSet, communicator_of
from tf_smddp._graphs import op_parts, tickets
from tf_smddp._graphs.call_site import check_call_site


def barrier(name: Optional[str] = None, process_set: Optional[ProcessSet] = None) -> Optional[tf.Operation]:
    """Waits until every rank has come to this barrier.

    Collective: every rank must call this, in the same order as its other collectives.

    Args:
        name: as in `allreduce`.
        process_set: as in `allreduce`.

    Returns:
        In a v1 graph the operation, to be run in a session. Else None: in eager mode all ranks have come
        then, and a `tf.function` waits at this place among its other stateful operations.
    """
    check_call_site("barrier")
    communicator = communicator_of(process_set, "barrier")
    tensor_name, node_name = tickets.names(name, "SmddpBarrier")
    by_name = tickets.pairs_by_name()
    operation = barrier_op(tensor_name, by_name, node_name, communicator)
    return operation if by_name else None


@op_parts.placed
def barrier_op(tensor_name: str, pair_by_name: bool, name: str, communicator: int = 0) -> tf.Operation | None:
    """Emits one SmddpBarrier; the operation in a graph, None in eager mode, where it has then happened."""
    with op_parts.marked(pair_by_name, communicator):
        return op_parts.ops.smddp_barrier(
            **op_parts.one_label(tensor_name),
            pair_by_name=pair_by_name,
            communicator=communicator,
            eager=tf.executing_eagerly(),
            name=name,
        )

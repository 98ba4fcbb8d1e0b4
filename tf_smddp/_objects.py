"""broadcast_object and allgather_object: Python objects from rank to rank."""

from __future__ import annotations

from typing import Any, List, Optional

from tf_smddp import _runtime
from tf_smddp._autograph import not_converted
from tf_smddp._broadcast import check_root
from tf_smddp._object_exchange import NO_ROOT, Pattern, exchange
from tf_smddp._process_sets import ProcessSet


@not_converted
def broadcast_object(
    obj: Any, root_rank: int = 0, name: Optional[str] = None, process_set: Optional[ProcessSet] = None
) -> Any:
    """Returns the root's object, on every rank.

    Collective: every rank must call this, in the same order as its other exchanges of objects. It waits for
    all ranks, takes no place among the gradients, and runs at once: in a v1 script too, without a session.
    Objects are pickled with cloudpickle: as always with pickles, the ranks must trust each other.

    Args:
        obj: on the root, what is to be sent; ignored on the others.
        root_rank: the rank whose object all get: a rank of the job, also with a process set.
        name: a name for error messages, the same on all ranks, which compare it.
        process_set: the ranks that take part; None is all.

    Returns:
        The object itself on the root, a copy on the others.

    Raises:
        RuntimeError: before `init`, while a `tf.function` is traced, or in a function that tf.data runs. On
            all ranks: they call different things, or one could not unpickle the object (the text says which).
        TypeError: `root_rank` is not an integer. On all ranks: the root could not pickle the object.
        ValueError: there is no such `root_rank`, or this rank is not in `process_set`.
    """
    _runtime.require_initialized("broadcast_object")
    root_rank = check_root(root_rank, process_set, "broadcast_object")
    return exchange(obj, Pattern.BROADCAST, root_rank, "broadcast_object", name, process_set)[root_rank]


@not_converted
def allgather_object(
    obj: Any, name: Optional[str] = None, process_set: Optional[ProcessSet] = None
) -> List[Any]:
    """Returns all ranks' objects, on every rank.

    Collective: every rank must call this, as `broadcast_object`.

    Args:
        obj: this rank's object. Each rank may have another kind of object.
        name: a name for error messages, the same on all ranks, which compare it.
        process_set: the ranks that take part; None is all.

    Returns:
        A list, in the order of the ranks: copies, also of this rank's own.

    Raises:
        RuntimeError: before `init`, while a `tf.function` is traced, or in a function that tf.data runs. On
            all ranks: they call different things, or one could not unpickle an object (the text says which).
        TypeError: on all ranks: one could not pickle its object (the text says which).
        ValueError: this rank is not in `process_set`.
    """
    return list(exchange(obj, Pattern.ALLGATHER, NO_ROOT, "allgather_object", name, process_set).values())

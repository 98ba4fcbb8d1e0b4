"""broadcast_object and allgather_object: Python objects from rank to rank, pickled, as uint8 tensors.

An exchange has three steps. All ranks of the process set do each of them, also after an error:

1. Headers. Each rank says which function it has called, the size of its pickle, and whether there is one. So
   ranks that call different functions notice it, and no rank waits for one that cannot pickle its object.
2. Payloads. Each rank that sends broadcasts its pickle.
3. Outcomes. Each rank says whether it could make objects of the pickles. So all ranks succeed, or all raise.

An error on one rank is raised on all. Its text comes from the first such rank, by a broadcast.

Headers and outcomes are out-of-band allreduces of a small table, in which each rank fills in its own row.
Payloads are broadcasts. Both have sequences of their own, so an exchange draws no ticket, and takes no place
among the gradients, as an allgather would. A broadcast from each rank moves as many bytes as an allgather.
"""

from __future__ import annotations

import enum
import pickle
from typing import Any, Dict, List, Optional, Sequence, Tuple

import cloudpickle
import numpy as np
import tensorflow as tf

from smddp import ReduceOp, runtime
from smddp.process_sets import ProcessSet, communicator_of, global_process_set
from tf_smddp._collectives.broadcast import broadcast_op, check_root
from tf_smddp._collectives.oob_allreduce import oob_allreduce_op
from tf_smddp._graphs import op_parts
from tf_smddp._graphs.call_site import check_can_act, immediately


class Pattern(enum.IntEnum):
    """The direction in which objects are sent."""

    BROADCAST = 1  # the root to all
    ALLGATHER = 2  # all to all
    GATHER = 3  # all to the root


NO_ROOT = -1  # where all get everything
# The columns of the table of headers.
_PATTERN, _ROOT, _BYTES, _FAILED = range(4)


def exchange(
    obj: Any,
    pattern: Pattern,
    root: int,
    caller: str,
    name: Optional[str],
    process_set: Optional[ProcessSet],
) -> Dict[int, Any]:
    """Sends this rank's object, if it is one that sends, and returns what it receives.

    Collective of the process set. It waits for all of its ranks.

    Args:
        obj: anything that cloudpickle takes, on the ranks that send.
        pattern: who sends to whom.
        root: a rank of the job that is in the process set; NO_ROOT for ALLGATHER.
        caller: the public function, for errors.
        name: a name for error messages, the same on all ranks, which compare it.
        process_set: the ranks that take part; None is all.

    Returns:
        By rank of the job, the objects that this rank gets: copies, also of its own, but for a broadcast's
        root, which gets the object itself.

    Raises:
        RuntimeError: before `init`, where nothing can be exchanged (see `immediately`), when the ranks call
            different things, or when a rank could not unpickle what it got.
        TypeError: a rank could not pickle its object.
        ValueError: this rank is not in `process_set`.
        tf.errors.InternalError, tf.errors.FailedPreconditionError: the ranks disagree, or one is gone.
    """
    check_can_act(caller)
    communicator = communicator_of(process_set, caller)
    members = process_set or global_process_set
    label = op_parts.NAMED + name if name else caller
    table = _Table(members.ranks, members.rank(), caller, label, communicator)
    own = members.ranks[members.rank()]
    senders = [root] if pattern is Pattern.BROADCAST else members.ranks
    receives = pattern is Pattern.ALLGATHER or (own == root) == (pattern is Pattern.GATHER)

    # Outside of `immediately`: users' code, which (un)pickling runs, sees their own mode and device.
    payload, failure = _pickled(obj, own, caller) if own in senders else (b"", None)
    header = (pattern, root, len(payload), failure is not None)
    headers = table.of_all_ranks(header, "headers")
    _check_same(headers, members.ranks, caller)
    table.raise_first([bool(row[_FAILED]) for row in headers], failure, TypeError)

    results, failure = {}, None
    for sender in senders:
        size = int(headers[members.ranks.index(sender)][_BYTES])
        received = table.broadcast(payload if sender == own else None, size, sender)
        if receives and failure is None:
            try:
                results[sender] = pickle.loads(received)
            except Exception as error:
                failure = _Failure(
                    f"tf_smddp.{caller}(): rank {own} could not unpickle the object of rank {sender}: "
                    f"{type(error).__name__}: {error}. It must be made of what all ranks can import.",
                    error,
                )
    if pattern is Pattern.BROADCAST and own == root:
        results = {own: obj}
    outcomes = table.of_all_ranks((failure is not None,), "outcomes")
    table.raise_first([bool(row[0]) for row in outcomes], failure, RuntimeError)
    return results


class _Failure:
    """The error of this rank."""

    def __init__(self, text: str, cause: Exception):
        self.text = text
        self.cause = cause


class _Table:
    """One row of integers for each rank of a process set, and the collectives that fill it."""

    def __init__(self, ranks: Sequence[int], index: int, caller: str, name: str, communicator: int):
        self._ranks = ranks
        self._index = index
        self._caller = caller
        self._name = name
        self._communicator = communicator

    def of_all_ranks(self, row: Sequence[int], what: str) -> np.ndarray:
        """Returns all ranks' rows, int64 [ranks, columns]."""
        mine = np.zeros([len(self._ranks), len(row)], np.int64)
        mine[self._index] = row
        names = [f"{self._name}/{what}"]
        with immediately(self._caller):
            sums = oob_allreduce_op([tf.constant(mine)], ReduceOp.SUM, names, False, None, self._communicator)
            return sums[0].numpy()

    def broadcast(self, payload: Optional[bytes], size: int, sender: int) -> memoryview:
        """Returns the sender's `size` bytes; `payload` is those on the sender, None elsewhere."""
        mine = np.empty([size], np.uint8) if payload is None else np.frombuffer(payload, np.uint8)
        name = f"{self._name}/payload"
        with immediately(self._caller):
            sent = broadcast_op(tf.constant(mine), sender, name, False, "SmddpBroadcast", self._communicator)
            return memoryview(sent.numpy())

    def raise_first(self, failed: List[bool], failure: Optional[_Failure], kind: type) -> None:
        """Raises `kind` on all ranks, with the text of the first that failed; nothing if none did."""
        if not any(failed):
            return
        first = failed.index(True)
        text = failure.text.encode("utf-8", errors="replace") if failure else b""
        size = int(self.of_all_ranks((len(text),), "error sizes")[first][0])
        sent = self.broadcast(text if first == self._index else None, size, self._ranks[first])
        raise kind(bytes(sent).decode("utf-8")) from (failure.cause if failure else None)


def _pickled(obj: Any, rank: int, caller: str) -> Tuple[bytes, Optional[_Failure]]:
    try:
        return cloudpickle.dumps(obj), None
    # RecursionError and MemoryError among them: whatever it is, the others must hear of it.
    except Exception as error:
        kind = f"{type(obj).__module__}.{type(obj).__qualname__}"
        return b"", _Failure(
            f"tf_smddp.{caller}(): rank {rank} could not pickle its object of type {kind}: "
            f"{type(error).__name__}: {error}. Send what it can be made from again instead.",
            error,
        )


def _check_same(headers: np.ndarray, ranks: Sequence[int], caller: str) -> None:
    """Raises a RuntimeError on all ranks if they call different things."""
    calls = [(int(row[_PATTERN]), int(row[_ROOT])) for row in headers]
    for rank, call in zip(ranks, calls):
        if call != calls[0]:
            raise RuntimeError(
                f"tf_smddp.{caller}(): the ranks call different things. Rank {ranks[0]} is in "
                f"{_described(calls[0])}, rank {rank} in {_described(call)}. All ranks must exchange objects "
                "in the same order, with the same root."
            )


def _described(call: Tuple[int, int]) -> str:
    pattern, root = call
    about_root = "" if root == NO_ROOT else f" with root rank {root}"
    return f"{Pattern(pattern).name.lower()} of objects{about_root}"


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
            all ranks: they call different things, or one could not unpickle an object (the text says which).
        TypeError: `root_rank` is not an integer. On all ranks: one could not pickle its object.
        ValueError: there is no such `root_rank`, or this rank is not in `process_set`.
    """
    runtime.require_initialized("broadcast_object")
    root_rank = check_root(root_rank, process_set, "broadcast_object")
    return exchange(obj, Pattern.BROADCAST, root_rank, "broadcast_object", name, process_set)[root_rank]


def allgather_object(
    obj: Any, name: Optional[str] = None, process_set: Optional[ProcessSet] = None
) -> List[Any]:
    """Returns all ranks' objects, on every rank.

    Collective: every rank must call this, as `broadcast_object`, and the errors are the same.

    Args:
        obj: this rank's object. Each rank may have another kind of object.
        name: as in `broadcast_object`.
        process_set: as in `broadcast_object`.

    Returns:
        A list, in the order of the ranks: copies, also of this rank's own.
    """
    return list(exchange(obj, Pattern.ALLGATHER, NO_ROOT, "allgather_object", name, process_set).values())

"""ProcessSet: a group of ranks that run collectives among themselves."""

from __future__ import annotations

import operator
from typing import Any, Dict, List, Optional, Sequence, Union

from smddp import runtime
from smddp.communicators import WORLD, create_communicator, remove_communicator


class ProcessSet:
    """A group of ranks. Pass it to `add_process_set` on all ranks, then to collectives as `process_set=`.

        pairs = sdp.add_process_set([0, 2])
        if pairs.included():
            total = sdp.allreduce(x, 0, 1, process_set=pairs)

    Attributes:
        process_set_id: its number, the same on all ranks; None unless it is added.
    """

    process_set_id: Optional[int] = None

    def __init__(self, ranks: Sequence[int]):
        """Describes a group.

        Args:
            ranks: ranks of the job, each once, in any order.

        Raises:
            TypeError: `ranks` is not a list of integers.
            ValueError: the list is empty, or a rank appears twice.
        """
        try:
            self._ranks = sorted(operator.index(rank) for rank in ranks)
        except TypeError:
            raise TypeError(
                f"ProcessSet takes a list of ranks as Python integers, but got {ranks!r}."
            ) from None
        if not self._ranks:
            raise ValueError("ProcessSet needs at least one rank, but got none.")
        if len(set(self._ranks)) < len(self._ranks):
            raise ValueError(f"ProcessSet takes each rank once, but got {list(ranks)!r}.")

    @property
    def ranks(self) -> List[int]:
        """The ranks in it, ascending; a rank's index in this list is its `rank()` in the set."""
        return list(self._ranks)

    def included(self) -> bool:
        """Returns whether this process is in the set.

        Raises:
            RuntimeError: before `init`.
        """
        return runtime.rank() in self.ranks

    def rank(self) -> int:
        """Returns the index of this process in the set.

        Raises:
            RuntimeError: before `init`.
            ValueError: this process is not in the set.
        """
        self.check_included("ProcessSet.rank")
        return self.ranks.index(runtime.rank())

    def size(self) -> int:
        """The number of ranks in it."""
        return len(self.ranks)

    def check_included(self, caller: str) -> None:
        """Raises a ValueError that names `caller` and the remedy, unless this process is in the set."""
        if not self.included():
            raise ValueError(
                f"{caller}() was called on rank {runtime.rank()}, which is not in the process set "
                f"{self.ranks}. Call it only where process_set.included() is true."
            )

    def __repr__(self) -> str:
        """Its ranks and its number."""
        return f"ProcessSet(ranks={self._ranks}, process_set_id={self.process_set_id})"


class _GlobalProcessSet(ProcessSet):
    """All ranks of the job."""

    process_set_id = 0

    def __init__(self) -> None:
        self._ranks = []

    @property
    def ranks(self) -> List[int]:
        """All ranks."""
        return list(range(runtime.size()))

    def __repr__(self) -> str:
        return "global_process_set"


global_process_set: ProcessSet = _GlobalProcessSet()

# All sets that are added, by their number, which is an attribute of the ops.
_added: Dict[int, ProcessSet] = {WORLD: global_process_set}


def some_leave_ranks_out() -> bool:
    """Whether there is a set of some ranks only, which may train other weights. The same on all ranks."""
    return any(each.size() < runtime.size() for each in _added.values())


def _forget() -> None:
    for number in [number for number in _added if number != 0]:
        _added.pop(number).process_set_id = None


runtime.at_shutdown.append(_forget)


def add_process_set(process_set: Union[ProcessSet, Sequence[int]]) -> ProcessSet:
    """Adds a process set to the job, so that its ranks can run collectives among themselves.

    Collective: every rank of the job must call this with the same ranks, whether or not it is in the set.
    All ranks must make their calls of this function and of `remove_process_set` in the same order. It
    waits for all ranks, and cannot be used in a `tf.function`.

    Args:
        process_set: a `ProcessSet` that is not added, or the ranks of a new one.

    Returns:
        The process set, with its number.

    Raises:
        RuntimeError: before `init`; or the ranks disagree, one has ended, or there is no room for another set
            (the text says which).
        TypeError: it is neither a ProcessSet nor a list of integers.
        ValueError: a rank does not exist or is named twice, or the set is added already.
    """
    runtime.require_initialized("add_process_set")
    if not isinstance(process_set, ProcessSet):
        process_set = ProcessSet(process_set)
    if process_set.process_set_id is not None:
        raise ValueError(f"add_process_set() got {process_set!r}, which is added already.")
    size = runtime.size()
    for rank in process_set.ranks:
        if not 0 <= rank < size:
            raise ValueError(
                f"add_process_set() needs ranks from 0 to size() - 1 = {size - 1}, but got {rank}."
            )
    process_set.process_set_id = create_communicator(process_set.ranks)
    _added[process_set.process_set_id] = process_set
    return process_set


def remove_process_set(process_set: ProcessSet) -> bool:
    """Removes a process set. A `tf.function` that was traced with it fails from then on.

    Collective: every rank of the job must call this, like `add_process_set`, when no collective of the set is
        pending.

    Args:
        process_set: one that was added.

    Returns:
        True, or False if the set was not added, or was removed before.

    Raises:
        RuntimeError: before `init`; or the ranks disagree, or a collective is pending (the text says which).
        TypeError: it is not a ProcessSet.
        ValueError: it is `global_process_set`.
    """
    runtime.require_initialized("remove_process_set")
    if not isinstance(process_set, ProcessSet):
        raise TypeError(f"remove_process_set() takes a ProcessSet, but got {process_set!r}.")
    if process_set is global_process_set:
        raise ValueError("remove_process_set() cannot remove global_process_set: it is the job itself.")
    if process_set.process_set_id is None:
        return False
    remove_communicator(process_set.process_set_id)
    _added.pop(process_set.process_set_id).process_set_id = None
    return True


def communicator_of(process_set: Any, caller: str) -> int:
    """Returns the number of the communicator for a user's `process_set=` argument; None is all ranks.

    Raises:
        TypeError: it is neither None nor a ProcessSet.
        ValueError: it is not added, or this process is not in it.
    """
    if process_set is None:
        return 0
    if not isinstance(process_set, ProcessSet):
        raise TypeError(f"{caller}() takes a ProcessSet or None as process_set, but got {process_set!r}.")
    if process_set.process_set_id is None:
        raise ValueError(
            f"{caller}() got {process_set!r}, which is not added. Call add_process_set() with it on all "
            "ranks first."
        )
    process_set.check_included(caller)
    return process_set.process_set_id


def joined_communicators() -> List[int]:
    """The numbers of the process sets that this rank is in; that of all ranks is the first."""
    return [number for number, process_set in sorted(_added.items()) if process_set.included()]


def process_set_of(communicator: int) -> ProcessSet:
    """Returns the process set for the number of a communicator, which an op has as an attribute.

    Raises:
        ValueError: it was removed.
    """
    if communicator not in _added:
        raise ValueError(f"process set {communicator} was removed, but an op that was made with it is used.")
    return _added[communicator]


def ranks_of(process_set: Optional[ProcessSet]) -> List[int]:
    """Returns the ranks for a user's `process_set=` argument; None is all ranks."""
    return (process_set or global_process_set).ranks

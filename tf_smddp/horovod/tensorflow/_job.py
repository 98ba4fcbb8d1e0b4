"""init, and the numbers of a rank."""

from __future__ import annotations

import os
import socket
from typing import Any, List, Optional, Sequence, Tuple, Union

import tensorflow as tf

import tf_smddp as sdp
from smddp import runtime
from tf_smddp._training.join import leave_and_return
from tf_smddp.horovod.tensorflow._environment import apply_settings, timeline, warn_about_others

# (host, local rank) of each rank, since the layer's init() in a job of several hosts; empty on one host.
_places: List[Tuple[str, int]] = []
runtime.at_shutdown.append(_places.clear)


def init(comm: Any = None, process_sets: Union[str, Sequence[sdp.ProcessSet], None] = None) -> None:
    """As `tf_smddp.init`; does nothing if that was called before. Collective.

    HOROVOD_… variables that have an equal of tf_smddp's have their effect (docs/horovod.md).

    Args:
        comm: None or an empty list, which both mean all ranks; some of the ranks are a process set here.
        process_sets: to be added to the job. "dynamic", by which Horovod allows `add_process_set` later, adds
            none: it is allowed here in any case.

    Raises:
        ValueError: `comm` is anything else, `process_sets` another text, or two of them have the same ranks.
        RuntimeError: the ranks could not be connected.
    """
    if comm is not None and not (isinstance(comm, (list, tuple)) and not comm):
        raise ValueError(
            f"hvd.init() takes no comm, but got {comm!r}. All ranks that the launcher has started are in the "
            "job; use process_sets=[hvd.ProcessSet(ranks)] for some of them."
        )
    sets = _sets_of(process_sets)
    if sdp.is_initialized():
        _find_places()
        return
    apply_settings(os.environ)
    sdp.init()
    if sdp.rank() == 0:
        warn_about_others(os.environ)
    file = timeline(os.environ)
    if file is not None and "SMDDP_TIMELINE" not in os.environ:
        start_timeline(file)
    _find_places()
    for process_set in sets:
        sdp.add_process_set(process_set)


def _find_places() -> None:
    # tf_smddp's own init() may have come first.
    if sdp.local_size() != sdp.size() and not _places:
        _places.extend(sdp.allgather_object((socket.gethostname(), sdp.local_rank())))


def _sets_of(process_sets: Union[str, Sequence[sdp.ProcessSet], None]) -> List[sdp.ProcessSet]:
    if isinstance(process_sets, str):
        if process_sets.lower() != "dynamic":
            raise ValueError(
                f"hvd.init() takes process_sets=[hvd.ProcessSet(ranks), ...] or 'dynamic', but got "
                f"{process_sets!r}."
            )
        return []
    sets = list(process_sets or ())
    for place, each in enumerate(sets):
        if any(other.ranks == each.ranks for other in sets[:place]):
            raise ValueError(
                f"hvd.init() got the process set of the ranks {each.ranks} twice; give each set once."
            )
    return sets


def join() -> int:
    """Waits until all ranks have called this; meanwhile the collectives of the others are without this rank.

    An average is over the ranks that have not joined. `tf_smddp.join` gives all ranks the newest variables,
    too.

    Returns:
        The rank that joined last; broadcast from it what the loop has changed.

    Raises:
        RuntimeError: before `init`; a rank has ended without joining, or the job has ended.
    """
    runtime.require_initialized("horovod.tensorflow.join")
    return leave_and_return()


def cross_size() -> int:
    """The number of hosts that have a rank with this one's local rank."""
    runtime.require_initialized("horovod.tensorflow.cross_size")
    return max(1, len(_peers()))


def cross_rank() -> int:
    """The index of this rank's host among those that have a rank with its local rank."""
    runtime.require_initialized("horovod.tensorflow.cross_rank")
    return _peers().index(sdp.rank()) if _places else 0


def _peers() -> List[int]:
    return [rank for rank, (_, local) in enumerate(_places) if local == sdp.local_rank()]


def is_homogeneous() -> bool:
    """Whether all hosts have the same number of ranks."""
    runtime.require_initialized("horovod.tensorflow.is_homogeneous")
    hosts = [host for host, _ in _places]
    return len({hosts.count(host) for host in hosts}) <= 1


def rank_op(name: Optional[str] = None) -> tf.Tensor:
    """`rank()` as a tensor: int32, a scalar."""
    return tf.constant(sdp.rank(), tf.int32, name=name)


def local_rank_op(name: Optional[str] = None) -> tf.Tensor:
    """`local_rank()` likewise."""
    return tf.constant(sdp.local_rank(), tf.int32, name=name)


def local_size_op(name: Optional[str] = None) -> tf.Tensor:
    """`local_size()` likewise."""
    return tf.constant(sdp.local_size(), tf.int32, name=name)


def size_op(process_set_id: int = 0, name: Optional[str] = None) -> tf.Tensor:
    """The number of ranks of a process set, likewise."""
    from smddp.process_sets import process_set_of

    return tf.constant(process_set_of(process_set_id).size(), tf.int32, name=name)


def process_set_included_op(process_set_id: int = 0, name: Optional[str] = None) -> tf.Tensor:
    """1 if this rank is in a process set, else 0, likewise."""
    from smddp.process_sets import process_set_of

    return tf.constant(int(process_set_of(process_set_id).included()), tf.int32, name=name)


def start_timeline(file_path: Union[str, os.PathLike], mark_cycles: bool = False) -> None:
    """Writes a timeline of rank 0's collectives, as `start_profiler`. `mark_cycles` has no effect."""
    if sdp.rank() == 0:
        sdp.start_profiler(file_path, append_rank=False)


def stop_timeline() -> None:
    """Ends the timeline."""
    sdp.stop_profiler()

"""Callbacks of Keras that act on each rank by itself, where all ranks must act alike.

Each rank's metrics are its own. So EarlyStopping and TerminateOnNaN would end the training of one rank, for
which the others then wait, and ReduceLROnPlateau would give ranks different rates, and so different weights.
Callbacks that write would write the same files from all ranks at once; they are made to take turns.

They are looked for where a `fit` with a callback of ours begins, and where its first step is traced, in which
the tape or the optimizer is ours.
"""

from __future__ import annotations

import inspect
import warnings
import weakref
from typing import Any, List, Optional

from tf_smddp._runtime import rank, size
from tf_smddp._write_in_turn import write_in_turn

_DECIDES = {
    "EarlyStopping": "ranks would stop in different epochs",
    "ReduceLROnPlateau": "ranks would get different learning rates, and different weights",
}
_WRITES = {
    "ModelCheckpoint": "Use RankZeroCheckpoint, or have it in the list of rank 0 alone",
    "BackupAndRestore": "Use tf_smddp.Checkpoint, which all ranks restore, with smddprun --max-restarts",
}
_STOPS_WITHIN_EPOCH = "TerminateOnNaN"
_AVERAGES = "MetricAverageCallback"
_ON_RANK_0 = "RankZeroCheckpoint"
# The callbacks that were warned of, by id.
_told: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()


def callbacks_of_caller() -> List[Any]:
    """Returns the callbacks of the CallbackList that calls the caller's `set_model`; [] without one."""
    frame = inspect.currentframe()
    for _ in range(2):
        frame = frame.f_back if frame else None
    return _listed(frame.f_locals.get("self")) if frame else []


def warn_within_fit() -> None:
    """As `warn_of` for the callbacks of the `fit` of Keras in which this is called, if it is in one."""
    if size() == 1:
        return
    frame = inspect.currentframe()
    while frame is not None:
        if frame.f_code.co_name == "fit":
            warn_of(_listed(frame.f_locals.get("callbacks")))
        frame = frame.f_back


def _listed(owner: Any) -> List[Any]:
    found = getattr(owner, "callbacks", None)
    return list(found) if isinstance(found, (list, tuple)) else []


def warn_of(callbacks: List[Any]) -> None:
    """Warns, once for each, of callbacks in the list of one `fit` that would act differently on each rank.

    Those that write files take turns from now on.

    Args:
        callbacks: all of them, in their order.
    """
    if size() == 1:
        return
    averaged = False
    for callback in callbacks:
        names = {ancestor.__name__ for ancestor in type(callback).__mro__}
        averaged = averaged or _AVERAGES in names
        if not names.isdisjoint(_WRITES) and _ON_RANK_0 not in names:
            write_in_turn(callback)
        text = _about(names, averaged, bool(getattr(callback, "save_best_only", False)))
        if text is not None and id(callback) not in _told:
            _told[id(callback)] = callback
            warnings.warn(text, stacklevel=3)


def _about(names: Any, averaged: bool, best_only: bool) -> Optional[str]:
    for name, harm in _DECIDES.items():
        if name in names and not averaged and rank() == 0:
            return (
                f"{name} decides by each rank's own metrics: {harm}. Put MetricAverageCallback() before it "
                "in the list, on all ranks."
            )
    if _STOPS_WITHIN_EPOCH in names and rank() == 0:
        return (
            f"{_STOPS_WITHIN_EPOCH} decides by each rank's own metrics: a rank whose loss is NaN would stop, "
            "and the others would wait for it. Leave it out. With SMDDP_CHECK_EVERY=1, a warning names the "
            "first rank whose gradients have a NaN."
        )
    if _ON_RANK_0 in names:
        return None
    for name, remedy in _WRITES.items():
        if name in names and rank() == 1:  # rank 0 is the one that should
            decides = " and decides by its own metrics" if best_only and not averaged else ""
            return (
                f"{name} is in the callbacks of rank 1, too{decides}: ranks with the same path write the "
                "same files, those of one host one after the other, which takes longer, and those of several "
                f"hosts at once, which may fail. {remedy}."
            )
    return None

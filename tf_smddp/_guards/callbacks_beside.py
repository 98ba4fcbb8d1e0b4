"""Callbacks of Keras that act on each rank by itself, where all ranks must act alike.

Each rank's metrics are its own. So EarlyStopping would end the training of one rank, for which the others
then wait, and ReduceLROnPlateau would give ranks different rates, and so different weights. Both get a
warning.

ModelCheckpoint and BackupAndRestore write, rename and delete files as one process would. Where several ranks
have the same path, one finds files missing or locked that another is about to write, and its exception ends
the job. A lock on the folder that holds the path prevents that on one host, and leaves no file behind. No
collective runs while a rank has it, so nobody waits for long.

They are looked for where a `fit` with a callback of ours begins, and where its first step is traced, in which
the tape or the optimizer is ours.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import importlib
import os
import warnings
import weakref
from typing import Any, Callable, Iterator, List, Optional

from smddp import rank, size
from tf_smddp._base.arguments import is_part

_DECIDES = {
    "EarlyStopping": "ranks would stop in different epochs",
    "ReduceLROnPlateau": "ranks would get different learning rates, and different weights",
}
_WRITES = {
    "ModelCheckpoint": "Use RankZeroCheckpoint, or have it in the list of rank 0 alone",
    "BackupAndRestore": "Use tf_smddp.Checkpoint, which all ranks restore, with smddprun --max-restarts",
}
_NOT_OF_PARTS = {"SwapEMAWeights"}
_AVERAGES = "MetricAverageCallback"
_ON_RANK_0 = "RankZeroCheckpoint"
_KERAS = ("keras", "tf_keras", "tensorflow")
_IN_TURN = "_tf_smddp_writes_in_turn"
# The callbacks that were warned of, by id.
_told: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()
# Its value "last" is the CallbackList of the `fit` that has begun last, unless that has ended.
_fits: weakref.WeakValueDictionary[str, Any] = weakref.WeakValueDictionary()


def watch_fits(kind: type) -> None:
    """Lets `callbacks_of_fit` know those of each `fit` that begins from now on.

    A callback sees no other one, and an optimizer sees none. So the CallbackList of Keras notes itself where
    it hands the model to its callbacks.

    Args:
        kind: a class of that Keras: of keras, or of tf_keras.
    """
    for name in {ancestor.__module__.partition(".")[0] for ancestor in kind.__mro__} & {"keras", "tf_keras"}:
        _note_lists(importlib.import_module(name).callbacks.CallbackList)


@functools.cache
def _note_lists(kind: Any) -> None:
    plain = kind.set_model

    @functools.wraps(plain)
    def set_model(self: Any, model: Any) -> None:
        _fits["last"] = self
        plain(self, model)

    kind.set_model = set_model


def callbacks_of_fit() -> List[Any]:
    """Returns the callbacks of the `fit` that runs, in their order; [] without one."""
    return list(getattr(_fits.get("last"), "callbacks", ()))


def warn_within_fit() -> None:
    """Warns, once for each, of callbacks of the `fit` that runs that would act differently on each rank.

    Those that write files take turns from now on.
    """
    if size() == 1:
        return
    averaged = False
    for callback in callbacks_of_fit():
        names = {ancestor.__name__ for ancestor in type(callback).__mro__}
        averaged = averaged or _AVERAGES in names
        if _ON_RANK_0 not in names:
            if not names.isdisjoint(_WRITES):
                _write_in_turn(callback)
            if _is_sharded(callback.model) and not names.isdisjoint(_NOT_OF_PARTS):
                raise ValueError(
                    f"{type(callback).__name__} is not for DistributedOptimizer(shard_state=True), of which "
                    "each rank has a part."
                )
            text = _about(callback, names, averaged)
            if text is not None and id(callback) not in _told:
                _told[id(callback)] = callback
                warnings.warn(text, stacklevel=3)


def _about(callback: Any, names: Any, averaged: bool) -> Optional[str]:
    best_only = bool(getattr(callback, "save_best_only", False))
    for name, harm in _DECIDES.items():
        if name in names and not averaged and rank() == 0:
            return (
                f"{name} decides by each rank's own metrics: {harm}. Put MetricAverageCallback() before it "
                "in the list, on all ranks."
            )
    for name, remedy in _WRITES.items():
        if name in names and rank() == 1 and _is_sharded(callback.model):
            return (
                f"{name} is in the callbacks of rank 1, too, as it must be with sharded state: give each "
                "rank a path of its own, or they write the same files at once."
            )
        if name in names and rank() == 1:  # rank 0 is the one that should
            decides = " and decides by its own metrics" if best_only and not averaged else ""
            return (
                f"{name} is in the callbacks of rank 1, too{decides}: ranks with the same path write the "
                "same files, those of one host one after the other, which takes longer, and those of several "
                f"hosts at once, which may fail. {remedy}."
            )
    return None


def _write_in_turn(callback: Any) -> None:
    """Lets a callback write only while no other rank of this host writes to the same folder.

    Nothing happens to one with the address of a store, such as s3://…, and to one of a class that is not
    Keras's own, which may run a collective where it writes.
    """
    path = getattr(callback, "filepath", None) or getattr(callback, "backup_dir", None)
    is_kerass = type(callback).__module__.partition(".")[0] in _KERAS
    if not is_kerass or path is None or "://" in os.fspath(path) or getattr(callback, _IN_TURN, False):
        return
    folder = os.path.dirname(os.path.abspath(os.fspath(path)))
    hooks = ["on_epoch_end", "on_train_end"]
    if getattr(callback, "save_freq", "epoch") != "epoch":
        hooks.append("on_train_batch_end")
    for name in hooks:
        setattr(callback, name, functools.partial(_locked, callback, folder, getattr(callback, name)))
    setattr(callback, _IN_TURN, True)


def _locked(callback: Any, folder: str, hook: Callable[..., None], *args: Any, **kwargs: Any) -> None:
    # All ranks save sharded state together.
    with contextlib.nullcontext() if _is_sharded(callback.model) else _lock_of(folder):
        hook(*args, **kwargs)


def _is_sharded(model: Any) -> bool:
    variables = getattr(getattr(model, "optimizer", None), "variables", ())
    return any(map(is_part, variables() if callable(variables) else variables))


@contextlib.contextmanager
def _lock_of(folder: str) -> Iterator[None]:
    descriptor: Optional[int] = None
    # Where a file system has no locks, the ranks write at once, as without all this.
    with contextlib.suppress(OSError):
        os.makedirs(folder, exist_ok=True)
        descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
    try:
        yield
    finally:
        if descriptor is not None:
            os.close(descriptor)

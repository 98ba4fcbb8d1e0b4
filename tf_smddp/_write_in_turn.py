"""Lets the ranks of one host write one after the other where a callback of Keras writes on each of them.

Keras's ModelCheckpoint and BackupAndRestore write, rename and delete files as one process would. Where
several ranks have the same path, one finds files missing or locked that another is about to write, and its
exception ends the job. A lock on the folder that holds the path prevents that, and leaves no file behind. No
collective runs while a rank has it, so nobody waits for long.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import os
from typing import Any, Callable, Iterator, Optional

_KERAS = ("keras", "tf_keras", "tensorflow")
_IN_TURN = "_tf_smddp_writes_in_turn"


def write_in_turn(callback: Any) -> None:
    """Makes a callback of Keras write only while no other rank of this host writes to the same folder.

    Args:
        callback: a ModelCheckpoint or a BackupAndRestore. Nothing happens to one with the address of a store,
            such as s3://…, or that was given before; and to one of a class that is not Keras's own, which may
            run a collective where it writes.
    """
    if type(callback).__module__.partition(".")[0] not in _KERAS:
        return
    path = getattr(callback, "filepath", None) or getattr(callback, "backup_dir", None)
    if path is None or "://" in os.fspath(path) or getattr(callback, _IN_TURN, False):
        return
    folder = os.path.dirname(os.path.abspath(os.fspath(path)))
    hooks = ["on_epoch_end", "on_train_end"]
    if getattr(callback, "save_freq", "epoch") != "epoch":
        hooks.append("on_train_batch_end")
    for name in hooks:
        setattr(callback, name, functools.partial(_locked, folder, getattr(callback, name)))
    setattr(callback, _IN_TURN, True)


def _locked(folder: str, hook: Callable[..., None], *args: Any, **kwargs: Any) -> None:
    with _lock_of(folder):
        hook(*args, **kwargs)


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

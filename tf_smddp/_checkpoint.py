"""Checkpoint: saves and restores a training of all ranks, so that it goes on where it was.

TensorFlow's own CheckpointManager writes the files: first the data, and then, by renaming one file, which of
them is the latest. So a checkpoint that was not written to its end is never read. What is added here: all
ranks agree on the step, an error of one is raised on all, and ranks that do not see rank 0's files get them.
"""

from __future__ import annotations

import contextlib
import operator
import os
import pathlib
import shutil
import tempfile
from typing import Any, Callable, Dict, List, Mapping, Optional

import tensorflow as tf

from tf_smddp import _runtime
from tf_smddp._immediately import check_can_act
from tf_smddp._objects import allgather_object, broadcast_object

_NAME = "ckpt"
_OF_RANKS = "ranks"


class Checkpoint:
    """A `tf.train.Checkpoint` of all ranks: rank 0 writes what is the same on all, each rank what is its own.

        checkpoint = sdp.Checkpoint("checkpoints", model=model, optimizer=optimizer)
        first = checkpoint.restore() or 0
        for step in range(first, STEPS):
            train_step(...)
            if (step + 1) % 100 == 0:
                checkpoint.save(step + 1)

    With `smddprun --max-restarts`, a job that fails goes on at its last checkpoint.
    """

    def __init__(
        self,
        directory: Any,
        max_to_keep: int = 5,
        per_rank: Optional[Mapping[str, Any]] = None,
        **shared: Any,
    ):
        """Makes it; reads and writes nothing.

        Args:
            directory: where the checkpoints are: a path on rank 0. The other ranks need not see it, unless
                there is something `per_rank`, which each rank reads and writes there itself.
            max_to_keep: the number of checkpoints to keep; older ones are deleted.
            per_rank: what each rank has of its own, by name, such as a dataset's iterator or a
                `tf.random.Generator`.
            **shared: what is the same on all ranks, by name, as for `tf.train.Checkpoint`: a model, an
                optimizer, variables.

        Raises:
            RuntimeError: before `init`.
            TypeError: `directory` is not a path.
            ValueError: there is nothing to save, or `max_to_keep` is less than 1.
        """
        _runtime.require_initialized("Checkpoint")
        self._directory = pathlib.Path(os.fspath(directory))
        if not shared and not per_rank:
            raise ValueError(
                "Checkpoint needs something to save: name it, as in Checkpoint(directory, model=model)."
            )
        if max_to_keep < 1:
            raise ValueError(f"Checkpoint needs max_to_keep >= 1, but got {max_to_keep}.")
        self._shared = tf.train.Checkpoint(**shared)
        self._own = tf.train.Checkpoint(**per_rank) if per_rank else None
        self._manager = tf.train.CheckpointManager(
            self._shared, str(self._directory), max_to_keep, checkpoint_name=_NAME
        )
        # Of a rank that does not see rank 0's files. TensorFlow reads them again for variables that are
        # created later.
        self._copies: List[tempfile.TemporaryDirectory[str]] = []

    def save(self, step: int) -> None:
        """Saves all ranks' state as that of `step`.

        Collective, outside of a `tf.function`; all ranks must pass the same step. When it returns, all of the
        checkpoint is written. When it fails, on whatever rank, the checkpoint before it is still the latest.

        Args:
            step: the number of steps that are done, 0 or more; more than in the checkpoints before it.

        Raises:
            RuntimeError: while a function is traced, or when a rank could not write (raised on all ranks;
                the text names the rank and the reason), or when the ranks pass different steps.
            TypeError: `step` is not an integer.
            ValueError: there is a checkpoint of this step, or of a later one.
        """
        check_can_act("Checkpoint.save")
        self._check(step)
        if self._own is not None:
            own = self._own
            self._on_all("write its part", lambda: own.write(str(self._part(step))))
        self._on_all(
            "write the checkpoint", lambda: self._write_shared(step) if _runtime.rank() == 0 else None
        )

    def restore(self) -> Optional[int]:
        """Restores the latest checkpoint on all ranks.

        Collective, outside of a `tf.function`. Variables that do not exist yet get their values when they are
        created.

        Returns:
            The step that was passed to `save`, the same on all ranks; None if there is no checkpoint.

        Raises:
            RuntimeError: while a function is traced, or when a rank could not read (raised on all ranks; the
                text names the rank and the reason).
        """
        check_can_act("Checkpoint.restore")
        latest = broadcast_object(self._latest() if _runtime.rank() == 0 else None)
        if latest is None:
            return None
        path = os.path.join(self._folder_here(latest), latest)
        step = _step_of(latest)
        self._on_all("read the checkpoint", lambda: self._shared.restore(path))
        if self._own is not None:
            own = self._own
            self._on_all("read its part", lambda: own.read(str(self._part(step))))
        return step

    def _latest(self) -> Optional[str]:
        state = tf.train.get_checkpoint_state(str(self._directory))
        return pathlib.Path(state.model_checkpoint_path).name if state else None

    def _part(self, step: int) -> pathlib.Path:
        return self._directory / _OF_RANKS / f"{step}" / f"rank-{_runtime.rank()}-of-{_runtime.size()}"

    def _write_shared(self, step: int) -> None:
        self._manager.save(checkpoint_number=step)
        kept = {str(_step_of(path)) for path in self._manager.checkpoints}
        parts = self._directory / _OF_RANKS
        for old in parts.iterdir() if parts.exists() else ():
            if old.name not in kept:
                shutil.rmtree(old, ignore_errors=True)
        for torn in self._directory.glob("*.tempstate*"):  # of a process that was killed while it wrote
            torn.unlink(missing_ok=True)

    def _folder_here(self, name: str) -> str:
        """Collective: where this rank finds rank 0's latest checkpoint; a copy if it does not see it."""
        index = self._directory / f"{name}.index"
        content = broadcast_object(_content(index) if _runtime.rank() == 0 else None)
        sees_it = _content(index) == content
        if all(allgather_object(sees_it)):
            return str(self._directory)

        def read() -> Dict[str, bytes]:
            paths = self._directory.glob(f"{name}.*") if _runtime.rank() == 0 else ()
            return {path.name: path.read_bytes() for path in paths}

        files = broadcast_object(self._on_all("read the checkpoint", read))

        def write() -> str:
            if sees_it:
                return str(self._directory)
            folder = tempfile.TemporaryDirectory(prefix="tf_smddp-checkpoint-")
            self._copies.append(folder)
            for file, data in files.items():
                (pathlib.Path(folder.name) / file).write_bytes(data)
            return folder.name

        return str(self._on_all("write a copy of the checkpoint", write))

    def _check(self, step: int) -> None:
        """Collective: raises on all ranks unless they save the same step, and a new one."""
        steps = allgather_object(operator.index(step))
        if len(set(steps)) > 1:
            listed = ", ".join(f"rank {rank} has {each}" for rank, each in enumerate(steps))
            raise RuntimeError(f"Checkpoint.save(): the ranks pass different steps: {listed}.")
        latest = broadcast_object(_step_of(self._latest()) if _runtime.rank() == 0 else None)
        if step <= latest:  # it would be written over, and be lost if that is not done to its end
            raise ValueError(
                f"Checkpoint.save({step}): there is a checkpoint of step {latest} in "
                f"{str(self._directory)!r}. Call restore() and go on there, or choose another directory."
            )

    @staticmethod
    def _on_all(what: str, act: Callable[[], Any]) -> Any:
        """Collective: returns what `act` returns; an error of one rank is raised on all."""
        cause: Optional[Exception] = None
        result = None
        try:
            result = act()
        except Exception as error:  # whatever it is, the others must hear of it
            cause = error
        failures = allgather_object(None if cause is None else f"{type(cause).__name__}: {cause}")
        for rank, text in enumerate(failures):
            if text is not None:
                raise RuntimeError(f"Checkpoint: rank {rank} could not {what}: {text}") from cause
        return result


def _step_of(name: Optional[str]) -> int:
    return -1 if name is None else int(name.rpartition("-")[2])


def _content(file: pathlib.Path) -> Optional[bytes]:
    with contextlib.suppress(OSError):
        return file.read_bytes()
    return None

"""Checkpoint: saves and restores a training of all ranks, so that it goes on where it was.

TensorFlow's own CheckpointManager writes the files: first the data, and then the file `checkpoint`, which
says which of them is the latest. So a checkpoint that was not written to its end is never read. That file is
replaced as a whole: by renaming on a file system; in S3, which cannot rename, by copying one object, of which
readers see the old one or the new one. This module adds: all ranks agree on the step, an error of one is
raised on all, and ranks that do not see rank 0's files get them.

All paths are strings for tf.io.gfile, since pathlib would make s3:/bucket of s3://bucket. The package
tensorflow-io, which is imported only where a path asks for it, brings file systems that TensorFlow lacks.

The folder may have other files in it, and links to elsewhere. So what is deleted is found by its whole name,
and only where no link leads to it.
"""

from __future__ import annotations

import contextlib
import importlib
import operator
import os
import pathlib
import re
import socket
import tempfile
import warnings
from typing import Any, Callable, Dict, List, Mapping, Optional

import tensorflow as tf

from smddp import runtime
from tf_smddp._collectives.objects import allgather_object, broadcast_object
from tf_smddp._graphs.call_site import check_can_act
from tf_smddp._training.local_sgd import synchronize_all
from tf_smddp._training.optimizers.sharded_state import whole_state


def is_remote(path: str) -> bool:
    """Whether the path is of another file system than the one of this host."""
    return "://" in path


def know_file_system(path: str) -> None:
    """Makes TensorFlow know the file system of `path`; does nothing where it does.

    Raises:
        ValueError: no package that is installed has this file system.
    """
    scheme = path.partition("://")[0]
    if not is_remote(path) or scheme in tf.io.gfile.get_registered_schemes():
        return
    reason = "which is not installed"
    try:
        # Where it does not fit TensorFlow, it says so in a warning, and has no file systems.
        version = importlib.import_module("tensorflow_io").__version__
        reason = f"but version {version} does not work with TensorFlow {tf.__version__}"
    except ImportError:
        pass
    if scheme not in tf.io.gfile.get_registered_schemes():
        raise ValueError(
            f"TensorFlow has no file system for {path!r}. The package tensorflow-io has some, {reason}. With "
            "TensorFlow 2.15, run: pip install tensorflow-io==0.34.0. With later versions, mount the store "
            "as a folder."
        )


_RESTARTS = "SMDDP_RESTART_COUNT"  # smddprun's: how often it has started the job again
_NAME = "ckpt"
_OF_RANKS = "ranks"
_PROBE = "tf_smddp-probe"
# The names of what TensorFlow writes. A process that is killed leaves those with .part, .tempstate and .tmp.
_FILE = r"(\.part-\d{5}-of-\d{5})?\.(index|data-\d{5}-of-\d{5})"
_TEMPORARY = rf"{_NAME}-\d+{_FILE}\.tempstate\d+|checkpoint\.tmp[0-9a-f]{{32}}"
_PART = rf"rank-\d+-of-\d+{_FILE}(\.tempstate\d+)?"
_FOLDER_OF_PART = r"rank-\d+-of-\d+_temp"
_FILE_OF_FOLDER = rf"part-\d{{5}}-of-\d{{5}}{_FILE}(\.tempstate\d+)?"


class Checkpoint:
    """A `tf.train.Checkpoint` of all ranks: rank 0 writes what is the same on all, each rank what is its own.

        checkpoint = sdp.Checkpoint("checkpoints", model=model, optimizer=optimizer)
        first = checkpoint.restore() or 0
        for step in range(first, STEPS):
            train_step(...)
            if (step + 1) % 100 == 0:
                checkpoint.save(step + 1)

    With `smddprun --max-restarts`, a job that fails goes on at its last checkpoint. Where the number of ranks
    may change, as with `--min-np`, save nothing `per_rank`: `shard` takes the position in the data instead.
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
            directory: where the checkpoints are: a path on rank 0, or one such as s3://bucket/folder, for
                which tensorflow-io is imported. The other ranks need not see it, unless there is something
                `per_rank`, which each rank reads and writes there itself. Other files may be in it.
            max_to_keep: the number of checkpoints to keep; older ones are deleted.
            per_rank: what each rank has of its own, by name, such as a dataset's iterator or a
                `tf.random.Generator`.
            **shared: what is the same on all ranks, by name, as for `tf.train.Checkpoint`: a model, an
                optimizer, variables.

        Raises:
            RuntimeError: before `init`.
            TypeError: `directory` is not a path.
            ValueError: there is nothing to save, `max_to_keep` is less than 1, or TensorFlow does not know
                the file system of `directory`.
        """
        runtime.require_initialized("Checkpoint")
        self._directory = re.sub("^file://(?=/)", "", os.fsdecode(directory))
        if not shared and not per_rank:
            raise ValueError(
                "Checkpoint needs something to save: name it, as in Checkpoint(directory, model=model)."
            )
        if max_to_keep < 1:
            raise ValueError(f"Checkpoint needs max_to_keep >= 1, but got {max_to_keep}.")
        self._objects = [*shared.values(), *(per_rank or {}).values()]
        self._shared = tf.train.Checkpoint(**shared)
        self._own = tf.train.Checkpoint(**per_rank) if per_rank else None
        know_file_system(self._directory)
        self._max_to_keep = max_to_keep
        self._manager: Any = None  # made when rank 0 saves, since making it reads
        # For a rank that does not see rank 0's files. TensorFlow reads them again for variables that are
        # created later.
        self._copies: List[tempfile.TemporaryDirectory[str]] = []

    def save(self, step: int) -> None:
        """Saves all ranks' state as that of `step`.

        Collective, outside of a `tf.function`; all ranks must pass the same step. Optimizers of `LocalSGD`
        average the weights first. When it returns, all of the checkpoint is written. When it fails, on
        whatever rank, the checkpoint before it is still the latest.

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
        synchronize_all(self._objects)
        if self._own is not None:
            own = self._own
            self._on_all("write its part", lambda: own.write(self._part(step)))
        with whole_state(self._shared):
            self._on_all(
                "write the checkpoint", lambda: self._write_shared(step) if runtime.rank() == 0 else None
            )

    def restore(self) -> Optional[int]:
        """Restores the latest checkpoint on all ranks.

        Collective, outside of a `tf.function`. Variables that do not exist yet get their values when they are
        created.

        Returns:
            The step that was passed to `save`, the same on all ranks; None if there is no checkpoint.

        Raises:
            RuntimeError: while a function is traced, or when a rank could not read (raised on all ranks; the
                text names the rank and the reason), or when what is `per_rank` is of another number of ranks.
        """
        check_can_act("Checkpoint.restore")
        latest = self._latest()
        if latest is None:
            if runtime.rank() == 0 and os.environ.get(_RESTARTS, "0") != "0":
                warnings.warn(
                    f"The job was started again, and Checkpoint.restore() finds no checkpoint in "
                    f"{self._directory!r} on host {socket.gethostname()}, so the training begins anew. If "
                    "rank 0 was on another host before, the folder must be in a file system that both have.",
                    stacklevel=2,
                )
            return None
        path = os.path.join(self._folder_here(latest), latest)
        step = _step_of(latest)
        what = f"read {self._path(latest)} (to go on at one before, name that in {self._path('checkpoint')})"
        self._on_all(what, lambda: self._shared.restore(path))
        if self._own is not None:
            own = self._own
            self._on_all("read its part", lambda: self._read_part(own, step))
        return step

    def _read_part(self, own: tf.train.Checkpoint, step: int) -> None:
        try:
            own.read(self._part(step))
        except tf.errors.NotFoundError as error:
            names = _names(self._path(_OF_RANKS, f"{step}"))
            sizes = {found[1] for found in (re.search(r"-of-(\d+)\.index$", name) for name in names) if found}
            if not sizes:
                raise
            raise RuntimeError(
                f"what is per_rank was saved by {' or '.join(sorted(sizes))} ranks, and there are "
                f"{runtime.size()} now. Save nothing per_rank where the number of ranks may change; "
                "shard(skip=…) takes the position in the data"
            ) from error

    def _latest(self) -> Optional[str]:
        """Collective: the name of the latest checkpoint; None if there is none."""

        def find() -> Optional[str]:
            if runtime.rank() != 0:
                return None
            state = tf.train.get_checkpoint_state(self._directory)
            if state is None and tf.io.gfile.exists(self._path("checkpoint")):
                raise RuntimeError(f"{self._path('checkpoint')} is there, but cannot be read")
            if state is None and is_remote(self._directory):
                self._check_that_it_answers()
            return os.path.basename(state.model_checkpoint_path) if state else None

        return broadcast_object(self._on_all(f"find the latest checkpoint in {self._directory}", find))

    def _check_that_it_answers(self) -> None:
        """Raises if the directory cannot be written and read.

        For tensorflow-io, a store that does not answer has no files. A training would begin at step 0.
        """
        probe = self._path(_PROBE)
        with tf.io.gfile.GFile(probe, "wb") as file:
            file.write(b"tf_smddp looks whether this can be read")
        tf.io.gfile.remove(probe)  # an error if it is not found

    def _path(self, *names: str) -> str:
        return os.path.join(self._directory, *names)

    def _part(self, step: int) -> str:
        return self._path(_OF_RANKS, f"{step}", f"rank-{runtime.rank()}-of-{runtime.size()}")

    def _write_shared(self, step: int) -> None:
        if self._manager is None:
            self._manager = tf.train.CheckpointManager(
                self._shared, self._directory, self._max_to_keep, checkpoint_name=_NAME
            )
        self._manager.save(checkpoint_number=step)
        # The checkpoint is written, whatever is left beside it.
        with contextlib.suppress(tf.errors.OpError, OSError):
            self._delete_old()

    def _delete_old(self) -> None:
        _delete_files(self._directory, _TEMPORARY)
        if self._own is None or not _is_folder(self._path(_OF_RANKS)):
            return
        kept = {_step_of(path) for path in self._manager.checkpoints}
        for step in _names(self._path(_OF_RANKS)):
            if step.isdecimal() and int(step) not in kept:
                folder = self._path(_OF_RANKS, step)
                for name in _names(folder):
                    if re.fullmatch(_FOLDER_OF_PART, name):
                        _delete_folder(os.path.join(folder, name), _FILE_OF_FOLDER)
                _delete_folder(folder, _PART)

    def _folder_here(self, name: str) -> str:
        """Collective: where this rank finds rank 0's latest checkpoint; a copy if it does not see it."""
        index = self._path(f"{name}.index")
        content = broadcast_object(_content(index) if runtime.rank() == 0 else None)
        sees_it = _content(index) == content
        if all(allgather_object(sees_it)):
            return self._directory

        def read() -> Dict[str, bytes]:
            if runtime.rank() != 0:
                return {}
            files = [file for file in _names(self._directory) if file.startswith(f"{name}.")]
            return {file: _read(self._path(file)) for file in files}

        files = broadcast_object(self._on_all("read the checkpoint", read))

        def write() -> str:
            if sees_it:
                return self._directory
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
        latest = _step_of(self._latest())
        if step <= latest:  # it would be written over, and be lost if that is not done to its end
            raise ValueError(
                f"Checkpoint.save({step}): there is a checkpoint of step {latest} in "
                f"{self._directory!r}. Call restore() and go on there, or choose another directory."
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


def _read(path: str) -> bytes:
    with tf.io.gfile.GFile(path, "rb") as file:
        return bytes(file.read())


def _content(path: str) -> Optional[bytes]:
    with contextlib.suppress(tf.errors.OpError):
        return _read(path)
    return None


def _names(folder: str) -> List[str]:
    """The names in a folder; none if it is not there."""
    with contextlib.suppress(tf.errors.NotFoundError):
        return [name.rstrip("/") for name in tf.io.gfile.listdir(folder)]
    return []


def _is_folder(path: str) -> bool:
    """Whether it is a folder, and no link to one. A store has no links."""
    return bool(tf.io.gfile.isdir(path)) and not os.path.islink(path)


def _delete_files(folder: str, pattern: str) -> None:
    """Deletes the files of these names in a folder; no links, and nothing in folders of these names."""
    for name in _names(folder):
        path = os.path.join(folder, name)
        if re.fullmatch(pattern, name) and not os.path.islink(path) and not tf.io.gfile.isdir(path):
            tf.io.gfile.remove(path)


def _delete_folder(folder: str, pattern: str) -> None:
    """Deletes the files of these names in a folder, and the folder if nothing else is in it."""
    if not _is_folder(folder):
        return
    _delete_files(folder, pattern)
    if is_remote(folder):
        if not _names(folder):
            tf.io.gfile.rmtree(folder)
    else:
        with contextlib.suppress(OSError):  # something else is in it
            os.rmdir(folder)

"""Has rank 0 alone write the files of a script that was written for one process.

The other ranks write to a folder of their own that goes away, rather than not at all: a variable that is
reduced where it is read, such as a metric's, is reduced while it is saved, and all ranks must take part.
All ranks read what rank 0 has written, so its folder must be one that all hosts see.
"""

from __future__ import annotations

import collections
import contextlib
import fcntl
import functools
import glob
import importlib
import inspect
import json
import os
import pathlib
import shutil
import sys
import tempfile
import time
import weakref
from typing import Any, Callable, Dict, Iterator, List, Set

import numpy as np
import tensorflow as tf

from smddp import ReduceOp, runtime
from tf_smddp._collectives.barrier import barrier
from tf_smddp._collectives.objects import broadcast_object
from tf_smddp._collectives.oob_allreduce import oob_allreduce
from tf_smddp._graphs.call_site import immediately
from tf_smddp._guards.start_weights import number_of

_began = time.time()  # before ranks meet, and so before a script runs on any
_ALL_CALL = "(which each rank must call)"
_wrapped: Set[type] = set()  # the classes Model of each Keras
_fetching: Set[Any] = set()  # the functions get_file of each Keras that are wrapped
_folders: List[tempfile.TemporaryDirectory[str]] = []  # which go away with the process


def write_on_rank_0_alone() -> None:
    """Wraps what writes files: TensorFlow's checkpoints, models, summaries and caches."""
    for owner, name in ((os, "mkdir"), (os, "makedirs"), (pathlib.Path, "mkdir")):
        setattr(owner, name, _make_once(getattr(owner, name)))
    tf.train.Checkpoint.save = _elsewhere(tf.train.Checkpoint.save)
    tf.train.Checkpoint.write = _elsewhere(tf.train.Checkpoint.write)
    tf.saved_model.save = _elsewhere(tf.saved_model.save)
    tf.train.CheckpointManager.save = _manager_elsewhere(tf.train.CheckpointManager.save)
    tf.data.Dataset.cache = _cache_of_a_rank(tf.data.Dataset.cache)
    if runtime.rank():
        # Until it is imported by this name, `tf.summary` is another module.
        summary: Any = importlib.import_module("tensorflow.summary")
        summary.create_file_writer = lambda *_, **__: tf.summary.create_noop_writer()


def write_keras_on_rank_0_alone(keras: Any) -> None:
    """Wraps what writes files in `tf.keras`, `keras` or `tf_keras`, once."""
    if keras.Model in _wrapped:
        return
    _wrapped.add(keras.Model)
    for owner, names in (
        (keras.Model, ("save", "save_weights", "export")),
        (keras.models, ("save_model",)),
        (getattr(keras, "saving", None), ("save_model", "save_weights")),
    ):
        for name in names:
            if hasattr(owner, name):
                setattr(owner, name, _elsewhere(getattr(owner, name)))
    _after(keras.callbacks.CSVLogger, "__init__", _drop_log)
    if hasattr(keras, "ops"):  # Keras 2 does this itself, for MultiWorkerMirroredStrategy
        _after(keras.callbacks.BackupAndRestore, "on_train_begin", _move_backup)
        _after(keras.callbacks.BackupAndRestore, "on_train_end", lambda _: barrier())


def fetch_once(job: int) -> None:
    """Wraps Keras's `get_file`, which `load_data` of its data sets calls, in all modules that have it.

    Args:
        job: a number that this job alone has.
    """
    modules = {name: each for name, each in sys.modules.items() if name.startswith(("keras.", "tf_keras."))}
    for name in ("keras.src.utils.file_utils", "keras.src.utils.data_utils", "tf_keras.src.utils.data_utils"):
        get_file = vars(modules[name]).get("get_file") if name in modules else None
        if get_file is None or get_file in _fetching:
            continue
        fetch = _fetched_once(get_file, job)
        _fetching.add(fetch)
        for each in modules.values():
            if vars(each).get("get_file") is get_file:
                each.get_file = fetch  # type: ignore[attr-defined]


def write_estimators_on_rank_0_alone(strategy: type) -> None:
    """Gives the estimators of other ranks a folder with a copy of the newest checkpoint."""
    estimator, config = tf.estimator.Estimator, tf.estimator.RunConfig

    def meet(self: Any) -> None:
        # Rank 0 saves when the last step is over, and the next estimator goes on there.
        if isinstance(self.config.train_distribute, strategy):
            _meet()

    def move(self: Any) -> None:
        if runtime.rank() and isinstance(self.config.train_distribute, strategy):
            folder = _folder()
            _copy_newest_checkpoint(self.model_dir, folder)
            self._model_dir, self._config = folder, self.config.replace(model_dir=folder)

    _after(estimator, "__init__", move)
    _after(estimator, "train", meet)
    for name in ("export_saved_model", "experimental_export_all_saved_models"):
        setattr(estimator, name, _elsewhere(getattr(estimator, name)))
    make = config.__init__

    @functools.wraps(make)
    def without_cluster(self: Any, *args: Any, **kwargs: Any) -> None:
        # It would take the cluster for one of TensorFlow's servers.
        cluster = os.environ.pop("TF_CONFIG", None)
        try:
            make(self, *args, **kwargs)
        finally:
            if cluster is not None:
                os.environ["TF_CONFIG"] = cluster

    config.__init__ = without_cluster


def _make_once(make: Callable[..., None]) -> Callable[..., None]:
    """Returns a function that makes a folder, unless another rank has made it since this job began.

    A script for one process asks whether the folder exists, and then makes it.
    """

    @functools.wraps(make)
    def make_once(path: Any, *args: Any, **kwargs: Any) -> None:
        try:
            make(path, *args, **kwargs)
        except FileExistsError:
            mode = args[0] if args else kwargs.get("mode", 0o777)
            # tempfile passes another mode, and takes another name.
            if mode != 0o777 or not os.path.isdir(path) or os.stat(path).st_ctime < _began:
                raise

    return make_once


def _cache_of_a_rank(cache: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a method that gives each rank a file of its own, as it caches its own part of the data."""

    @functools.wraps(cache)
    def cache_of_a_rank(self: Any, filename: Any = "", name: Any = None) -> Any:
        if isinstance(filename, (str, os.PathLike)) and str(filename):
            # A job of another size divides the data otherwise, so it must not read these files.
            filename = f"{os.fspath(filename)}.rank{runtime.rank()}of{runtime.size()}"
        return cache(self, filename, name)

    return cache_of_a_rank


def _fetched_once(get_file: Callable[..., str], job: int) -> Callable[..., str]:
    """Returns a function that fetches a file once in a job on hosts with the same folder; others wait."""
    signature = inspect.signature(get_file)
    calls: Dict[str, int] = collections.Counter()

    @functools.wraps(get_file)
    def fetch(*args: Any, **kwargs: Any) -> str:
        given = signature.bind(*args, **kwargs).arguments
        call = repr(sorted(given.items()))
        calls[call] += 1
        folder = given.get("cache_dir") or os.environ.get("KERAS_HOME") or "~/.keras"
        with _notes(os.path.expanduser(folder), job) as paths:
            key = f"{call} {calls[call]}"
            if key not in paths:
                paths[key] = str(get_file(*args, **kwargs))
            return paths[key]

    return fetch


@contextlib.contextmanager
def _notes(folder: str, job: int) -> Iterator[Dict[str, str]]:
    """Yields what the ranks of this job have noted in a file in `folder`. One rank at a time."""
    with contextlib.suppress(OSError):
        os.makedirs(folder, exist_ok=True)
    if not os.access(folder, os.W_OK):
        folder = tempfile.gettempdir()
    with open(os.path.join(folder, f".tf_smddp-{os.getuid()}"), "a+") as file:
        with contextlib.suppress(OSError):  # of a file system that has no locks
            fcntl.lockf(file, fcntl.LOCK_EX)  # until the file is closed, also if the process dies
        file.seek(0)
        try:
            notes = json.loads(file.read())
        except ValueError:
            notes = {}
        if notes.get("job") != job:
            notes = {"job": job, "paths": {}}
        yield notes["paths"]
        file.seek(0)
        file.truncate()
        json.dump(notes, file)


def _elsewhere(write: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a function that does what `write(self or object, path, ...)` does, on rank 0 alone.

    It is collective. Ranks that name files of their own, as scripts for several workers do, write these.
    """
    signature = inspect.signature(write)
    _, name, *_ = signature.parameters

    @functools.wraps(write)
    def write_somewhere(*args: Any, **kwargs: Any) -> Any:
        given = signature.bind(*args, **kwargs)
        path = given.arguments.get(name)
        if runtime.size() == 1 or not isinstance(path, (str, os.PathLike)) or _is_traced():
            return write(*args, **kwargs)
        is_one_file = _is_same_everywhere(os.path.abspath(path), write.__name__)
        with _place_for(os.path.abspath(path), is_one_file) as place:
            given.arguments[name] = place or path
            result = write(*given.args, **given.kwargs)
        if not is_one_file:
            return result
        # When rank 0 has written the file: a rank may read it next.
        path_of_rank_0 = broadcast_object(result if isinstance(result, (str, bytes)) else None)
        return result if path_of_rank_0 is None else path_of_rank_0

    return write_somewhere


def _manager_elsewhere(save: Callable[..., Any]) -> Callable[..., Any]:
    """Does what `_elsewhere` does for a CheckpointManager, whose folder is that of the manager.

    From its first checkpoint on, the manager of another rank has a folder that goes away with the process. It
    has read by then what there was. There is no public way to move it.
    """
    moved: weakref.WeakKeyDictionary[Any, str] = weakref.WeakKeyDictionary()

    @functools.wraps(save)
    def save_somewhere(self: Any, *args: Any, **kwargs: Any) -> Any:
        if runtime.size() == 1 or _is_traced():
            return save(self, *args, **kwargs)
        folder = moved.get(self, self.directory)
        is_one_folder = _is_same_everywhere(os.path.abspath(folder), "CheckpointManager.save")
        if is_one_folder and runtime.rank() and self not in moved:
            moved[self] = folder
            self._directory = _folder()
            name = os.path.basename(self._checkpoint_prefix)
            self._checkpoint_prefix = os.path.join(self._directory, name)
        result = save(self, *args, **kwargs)
        if is_one_folder:
            _meet()
        return result

    return save_somewhere


def _is_traced() -> bool:
    """Whether the call is a part of a function, which writes nothing itself. In a v1 graph it does."""
    return not tf.executing_eagerly() and bool(tf.compat.v1.get_default_graph().building_function)


def _meet() -> None:
    with immediately("barrier"):
        barrier()


def _is_same_everywhere(path: str, caller: str) -> bool:
    """Collective. The name is in the error if another rank does not save."""
    number = number_of([path.encode()])
    with immediately(caller):
        numbers = oob_allreduce(np.array([number, ~number]), op=ReduceOp.MAX, name=f"{caller}() {_ALL_CALL}")
        largest, negated_least = numbers.numpy()
    return bool(largest == ~negated_least)


@contextlib.contextmanager
def _place_for(path: str, is_one_file: bool) -> Iterator[str]:
    """Yields a path in a folder that goes away; "" on rank 0, and where each rank has a file of its own."""
    if runtime.rank() == 0 or not is_one_file:
        yield ""
        return
    with tempfile.TemporaryDirectory() as folder:
        yield os.path.join(folder, os.path.basename(path))


def _after(owner: Any, name: str, do: Callable[[Any], Any]) -> None:
    """Has `do(self)` run after the method of this name."""
    method = getattr(owner, name)

    @functools.wraps(method)
    def both(self: Any, *args: Any, **kwargs: Any) -> Any:
        result = method(self, *args, **kwargs)
        do(self)
        return result

    setattr(owner, name, both)


def _folder() -> str:
    """A folder of this rank that goes away with it."""
    _folders.append(tempfile.TemporaryDirectory())
    return _folders[-1].name


def _drop_log(callback: Any) -> None:
    if runtime.rank():
        callback.filename = os.devnull


def _move_backup(callback: Any) -> None:
    """Has Keras 3's BackupAndRestore, which has read what there is, write elsewhere."""
    if runtime.rank():
        old, new = str(callback.backup_dir), _folder()
        for name, value in list(vars(callback).items()):
            if isinstance(value, (str, os.PathLike)) and str(value).startswith(old):
                setattr(callback, name, new + str(value)[len(old) :])


def _copy_newest_checkpoint(source: str, to: str) -> None:
    newest = tf.train.latest_checkpoint(source)
    if newest is not None:
        for path in glob.glob(glob.escape(newest) + ".*"):
            shutil.copy(path, to)
        copied = os.path.join(to, os.path.basename(newest))
        tf.compat.v1.train.update_checkpoint_state(to, copied, [copied])

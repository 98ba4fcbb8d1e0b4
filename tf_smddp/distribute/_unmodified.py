"""Has a script that was written for TensorFlow's strategies run on the ranks of a job."""

from __future__ import annotations

import collections
import copy
import functools
import inspect
import json
import os
import random
import sys
import warnings
from typing import Any, Callable, Dict, Iterator, Tuple

import numpy as np
import tensorflow as tf

from smddp import broadcast, init, runtime
from tf_smddp._base import tensorflow_private
from tf_smddp._guards.start_weights import hash_of
from tf_smddp.distribute import _files
from tf_smddp.distribute._strategy import JobClusterResolver, Strategy, choose_gpu, workers

_STRATEGIES = (
    "CentralStorageStrategy",
    "MirroredStrategy",
    "MultiWorkerMirroredStrategy",
    "OneDeviceStrategy",
)
_RESOLVERS = ("SlurmClusterResolver", "TFConfigClusterResolver")


class UnmodifiedStrategy(Strategy):
    """What a script gets by the names of TensorFlow's strategies."""

    is_made = False
    job = 0  # a number that this job alone has

    def __init__(self, *places: Any, **options: Any):
        """As `Strategy`; wraps Keras, which the script has chosen by now."""
        super().__init__(*places, **options)
        UnmodifiedStrategy.is_made = True
        if runtime.size() > 1:
            for keras in (tf.keras, *map(sys.modules.get, ("keras", "tf_keras"))):
                if keras is not None:
                    _files.write_keras_on_rank_0_alone(keras)
            _files.fetch_once(UnmodifiedStrategy.job)


def install() -> None:
    """Calls `init()`, and has scripts get our strategy by TensorFlow's names. Collective.

    The script is one for one process, or for several workers. Each rank runs all of it. So random numbers of
    Python's and NumPy's global generators, and the order of shuffled data sets, are alike on all ranks,
    unless the script sets seeds; and rank 0 alone writes files.
    """
    os.environ.pop("TF_CONFIG", None)
    init()
    choose_gpu()
    task = {"type": "worker", "index": runtime.rank()}
    os.environ["TF_CONFIG"] = json.dumps({"cluster": {"worker": workers()}, "task": task})
    for api in (tf, tf.compat.v1, tf.compat.v2):
        for module in (api.distribute, getattr(api.distribute, "experimental", None)):
            for name in _STRATEGIES:
                if hasattr(module, name):
                    setattr(module, name, UnmodifiedStrategy)
        for name in _RESOLVERS:
            setattr(api.distribute.cluster_resolver, name, JobClusterResolver)
    if hasattr(tf, "estimator"):  # up to TensorFlow 2.15
        _files.write_estimators_on_rank_0_alone(Strategy)
    runtime.before_shutdown.append(_warn_of_no_strategy)
    if runtime.size() == 1:
        return
    seed = np.array([random.getrandbits(31)])
    # No tensor yet: with the first one, TensorFlow starts its GPUs, and takes no options for them any more.
    broadcast(seed, 0)
    random.seed(int(seed[0]))
    np.random.seed(seed)
    _draw_alike(int(seed[0]))
    tf.data.Dataset.from_generator = staticmethod(_with_copies(tf.data.Dataset.from_generator))
    UnmodifiedStrategy.job = int(seed[0])
    _files.write_on_rank_0_alone()
    _files.fetch_once(UnmodifiedStrategy.job)


def _warn_of_no_strategy() -> None:
    if runtime.size() > 1 and runtime.rank() == 0 and not UnmodifiedStrategy.is_made:
        warnings.warn(
            "the script has made no strategy that python -m tf_smddp.distribute knows "
            f"({', '.join(_STRATEGIES)}), so each of the {runtime.size()} ranks has run all of it by itself.",
            stacklevel=2,
        )


def _with_copies(from_generator: Callable[..., Any]) -> Callable[..., Any]:
    """Returns `from_generator` with copies of what a generator yields.

    TensorFlow cuts a batch without a copy, and may write results of a step into a part of it, also if that
    is a part of the script's own array. It does so with MirroredStrategy, too.
    """

    def copy_of(value: Any) -> Any:
        if isinstance(value, np.ndarray):
            return value.copy()
        if isinstance(value, dict):
            same_type = copy.copy(value)
            same_type.update((key, copy_of(each)) for key, each in value.items())
            return same_type
        if type(value) is tuple:
            return tuple(map(copy_of, value))
        if isinstance(value, tuple) and hasattr(value, "_make"):
            return value._make(map(copy_of, value))
        return value  # of a list, TensorFlow makes a tensor

    @functools.wraps(from_generator)
    def from_copies(generator: Any, *args: Any, **kwargs: Any) -> Any:
        def copies(*arguments: Any) -> Iterator[Any]:
            return map(copy_of, generator(*arguments))

        return from_generator(copies if callable(generator) else generator, *args, **kwargs)

    return from_copies


def _draw_alike(seed: int) -> None:
    """Has data be shuffled and chosen in the same order on all ranks.

    A script for one process needs no seed. Ranks take parts of the same sequence, so it must be the same one.
    A seed depends on the place of the call, so that a call that one rank alone makes shifts no other.
    """
    calls: Dict[Tuple[str, int], int] = collections.Counter()

    def alike(draw: Callable[..., Any], **if_unseeded: Any) -> Callable[..., Any]:
        @functools.wraps(draw)
        def draw_alike(*args: Any, **kwargs: Any) -> Any:
            frame = sys._getframe(1)
            place = (os.path.basename(frame.f_code.co_filename), frame.f_lineno)
            calls[place] += 1
            given = inspect.signature(draw).bind(*args, **kwargs)
            if given.arguments.get("seed") is None and tensorflow_private.global_seed() is None:
                drawn = hash_of(f"{seed} {place} {calls[place]}".encode())
                given.arguments["seed"] = int.from_bytes(drawn, "little") >> 33
                for name, value in if_unseeded.items():
                    if given.arguments.get(name) is None:
                        given.arguments[name] = value
            return draw(*given.args, **given.kwargs)

        return draw_alike

    data = tf.data.Dataset
    data.shuffle = alike(data.shuffle)
    for name in ("random", "sample_from_datasets"):  # in each epoch other numbers, as without a seed
        setattr(data, name, staticmethod(alike(getattr(data, name), rerandomize_each_iteration=True)))
    for api in (tf, tf.compat.v1, tf.compat.v2):  # Keras shuffles the indices of arrays with the first
        api.random.shuffle = alike(api.random.shuffle)
        api.data.experimental.shuffle_and_repeat = alike(api.data.experimental.shuffle_and_repeat)

"""MetricAverageCallback: the metrics of an epoch, averaged over all ranks."""

from __future__ import annotations

from typing import Any, Dict, List, Optional, Set

import numpy as np
import tensorflow as tf

from smddp import ReduceOp
from tf_smddp._collectives.allgather import allgather
from tf_smddp._collectives.oob_allreduce import oob_allreduce_op
from tf_smddp._graphs.call_site import immediately
from tf_smddp._guards.gradient_use import warn_if_never_reduced

_END_OF_KEYS = "\0"


class MetricAverageCallback(tf.keras.callbacks.Callback):
    """Replaces the logs at the end of each epoch by their averages over all ranks, in place.

    Collective: every rank must have it in its callbacks, with the same metrics. It must come before the
    callbacks that read the logs (ReduceLROnPlateau, EarlyStopping, TensorBoard, checkpoints with
    `save_best_only`), so that they make the same decision on all ranks. The history has the averages, too.

    Each rank has the same weight in the average, regardless of its number of samples. So give all ranks the
    same number of samples if you need the metric of the whole data set. Numbers become floats; arrays are
    averaged element by element.
    """

    def on_epoch_end(self, epoch: int, logs: Optional[Dict[str, Any]] = None) -> None:
        """Keras's hook. Collective.

        Raises:
            TypeError: a value is not a number or an array of numbers.
            ValueError: the ranks have logs with different names, which the text lists. Raised on all ranks.
        """
        if logs is None:
            return
        warn_if_never_reduced("MetricAverageCallback", "the first epoch of fit() has ended")
        values = {key: _as_float64(key, value) for key, value in logs.items()}
        with immediately("MetricAverageCallback"):  # Keras 2 may be in a v1 graph
            _check_keys(sorted(values))
            keys = sorted(values)
            averages = oob_allreduce_op(
                [tf.constant(values[key]) for key in keys],
                ReduceOp.AVERAGE,
                keys,
                False,
                "MetricAverageCallback",
            )
            for key, average in zip(keys, averages):
                logs[key] = float(average) if average.shape.rank == 0 else average.numpy()


def _as_float64(key: str, value: Any) -> np.ndarray:
    try:
        return np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError):
        raise TypeError(
            f"MetricAverageCallback can average numbers only, but the log {key!r} is {value!r}. "
            "Put the callback that adds this log after MetricAverageCallback."
        ) from None


def _check_keys(keys: List[str]) -> None:
    """Collective: raises a ValueError on all ranks unless they have the same keys."""
    mine = "".join(key + _END_OF_KEYS for key in keys) + "\n"
    gathered = allgather(np.frombuffer(mine.encode(), np.uint8), name="MetricAverageCallback/keys").numpy()
    by_rank: List[Set[str]] = [
        set(line.split(_END_OF_KEYS)) - {""} for line in gathered.tobytes().decode().split("\n")[:-1]
    ]
    common = set.intersection(*by_rank)
    extra = {rank: sorted(found - common) for rank, found in enumerate(by_rank) if found - common}
    if extra:
        listed = ", ".join(f"rank {rank} has {names}" for rank, names in extra.items())
        raise ValueError(
            f"MetricAverageCallback: the ranks' logs differ: {listed}, which not all ranks have. Compile the "
            "model with the same metrics everywhere, validate on all ranks or on none, and put callbacks "
            "that add logs on some ranks only after MetricAverageCallback."
        )

"""TensorBoardStats: the cost of the collectives in each epoch, for TensorBoard."""

from __future__ import annotations

import os
import time
from typing import Any, Dict, List

import tensorflow as tf

from smddp import rank
from tf_smddp._collectives.objects import allgather_object
from tf_smddp._training.watching import stats

_OF_KINDS = ("calls", "bytes", "staged_bytes", "waiting_seconds")
_OF_SETS = ("blocked_seconds", "steps", "last_steps")
_ADDED = (*_OF_KINDS, *_OF_SETS)

# By this TensorBoard knows scalars. tf.summary.scalar needs the package tensorboard, which newer TensorFlows
# do not bring along.
_SCALAR = tf.compat.v1.SummaryMetadata(
    plugin_data=tf.compat.v1.SummaryMetadata.PluginData(plugin_name="scalars"), data_class="DATA_CLASS_SCALAR"
)


class TensorBoardStats(tf.keras.callbacks.Callback):
    """Writes what the collectives of each epoch have cost, as scalars that TensorBoard shows.

    Collective: every rank must have it in its callbacks. At the end of each epoch the ranks exchange their
    `stats()`, and rank 0 writes, with the epoch as the step:

    - "smddp/blocked_seconds": the time that has passed while a rank could only wait for communication, on
      average over the ranks, without communication that the backward pass hides.
    - "smddp/blocked_share": the same, as a share of the epoch's time, 0 to 1.
    - "smddp/waiting_seconds_per_call": how long a call of a collective waited for its turn and for other
      ranks, on average over all calls of all ranks.
    - "smddp/imbalance_seconds": how much longer the rank that waited most has waited per call than the one
      that waited least, which is the slow one: the others wait for it.
    - "smddp/slowest_rank": the rank that waited least.
    - "smddp/slowest_rank_last_share": the share of the epoch's steps in which that rank was the last to
      arrive, 0 to 1.
    - "smddp/bytes", "smddp/staged_bytes": the bytes of a rank's inputs, and the part of them that was copied
      because some rank's tensor was in private memory, on average over the ranks.

    docs/watching.md explains the figures. It does not reset `stats()`.
    """

    def __init__(self, log_dir: Any):
        """Makes the callback; writes nothing.

        Args:
            log_dir: the folder for the event files, as for `tf.keras.callbacks.TensorBoard`: a path or a URL
                that TensorFlow can write to, on rank 0. It may be a folder that has other event files.

        Raises:
            TypeError: `log_dir` is not a path.
        """
        super().__init__()
        try:
            self._log_dir = os.fspath(log_dir)
        except TypeError:
            raise TypeError(
                "TensorBoardStats needs the path of a folder, as in TensorBoardStats('logs'), but got "
                f"{log_dir!r}."
            ) from None
        self._writer: Any = None
        self._before: Dict[str, float] = {}
        self._begin = 0.0

    def on_train_begin(self, logs: Any = None) -> None:
        """Keras's hook.

        Raises:
            RuntimeError: eager execution is off, or before `init`.
        """
        if not tf.executing_eagerly():
            raise RuntimeError(
                "TensorBoardStats needs eager execution. In a v1 graph, write what tf_smddp.stats() returns "
                "with a tf.compat.v1.summary.FileWriter."
            )
        if rank() == 0:
            self._writer = tf.summary.create_file_writer(self._log_dir, filename_suffix=".smddp")

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Keras's hook."""
        self._before, self._begin = _sums(), time.perf_counter()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Keras's hook. Collective."""
        seconds = time.perf_counter() - self._begin
        after = _sums()
        mine = {name: after[name] - self._before[name] for name in _ADDED}
        everyone = allgather_object({**mine, "seconds": seconds}, name="TensorBoardStats")
        if self._writer is not None:
            with self._writer.as_default(step=epoch):
                for name, value in scalars(everyone).items():
                    tf.summary.write(f"smddp/{name}", tf.constant(value, tf.float32), metadata=_SCALAR)
            self._writer.flush()

    def on_train_end(self, logs: Any = None) -> None:
        """Keras's hook."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None


def scalars(everyone: List[Dict[str, float]]) -> Dict[str, float]:
    """Returns what is written for one epoch.

    Args:
        everyone: by rank, what the epoch has added to each figure, and the "seconds" of the epoch.
    """
    count = len(everyone)
    mean = {name: sum(each[name] for each in everyone) / count for name in (*_ADDED, "seconds")}
    waits = [each["waiting_seconds"] / max(each["calls"], 1) for each in everyone]
    slowest = waits.index(min(waits))
    return {
        "blocked_seconds": mean["blocked_seconds"],
        "blocked_share": mean["blocked_seconds"] / max(mean["seconds"], 1e-9),
        "waiting_seconds_per_call": mean["waiting_seconds"] / max(mean["calls"], 1),
        "imbalance_seconds": max(waits) - min(waits),
        "slowest_rank": slowest,
        "slowest_rank_last_share": everyone[slowest]["last_steps"] / max(everyone[slowest]["steps"], 1),
        "bytes": mean["bytes"],
        "staged_bytes": mean["staged_bytes"],
    }


def _sums() -> Dict[str, float]:
    """Returns this rank's figures since `init`, summed over the kinds of collectives or the process sets."""
    figures = stats()
    sums = {name: sum(kind[name] for kind in figures["collectives"].values()) for name in _OF_KINDS}
    of_sets = {name: sum(each[name] for each in figures["process_sets"]) for name in _OF_SETS}
    return {**sums, **of_sets}

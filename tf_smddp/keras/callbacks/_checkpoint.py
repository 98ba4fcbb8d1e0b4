"""RankZeroCheckpoint: checkpoints that rank 0 alone writes."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from smddp import rank


class RankZeroCheckpoint(tf.keras.callbacks.ModelCheckpoint):
    """A `tf.keras.callbacks.ModelCheckpoint`, with its arguments, that saves on rank 0 only.

    This is not a collective. On the other ranks it does nothing: it writes no files, creates no directories,
    prints no messages, and leaves `best` unchanged. So all ranks can have the same list of callbacks. With
    `save_best_only`, rank 0 decides by its own metrics, unless `MetricAverageCallback` comes before this
    callback.

    The other ranks do not wait for the file. Call `tf_smddp.barrier` before they read it.
    """

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Keras's hook."""
        if rank() == 0:
            super().on_train_batch_end(batch, logs)

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Keras's hook."""
        if rank() == 0:
            super().on_epoch_end(epoch, logs)

"""RankZeroCheckpoint: checkpoints that rank 0 alone writes."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from tf_smddp._runtime import rank


class RankZeroCheckpoint(tf.keras.callbacks.ModelCheckpoint):
    """A `tf.keras.callbacks.ModelCheckpoint`, with its arguments, that saves on rank 0 only.

    Not a collective; on the other ranks it does nothing when Keras calls it to save: no files, no folders, no
    messages, and `best` stays as it was. So all ranks can have the same list of callbacks, and all ranks have
    the same weights to save. With `save_best_only` rank 0 decides by its own metrics, unless
    `MetricAverageCallback` comes before this.

    Nobody waits for the file. The other ranks go on until they need rank 0 in the next step; call
    `tf_smddp.barrier` before they read what it wrote.
    """

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Keras's hook."""
        if rank() == 0:
            super().on_train_batch_end(batch, logs)

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Keras's hook."""
        if rank() == 0:
            super().on_epoch_end(epoch, logs)

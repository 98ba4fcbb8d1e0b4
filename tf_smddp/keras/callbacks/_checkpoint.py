"""RankZeroCheckpoint: checkpoints that rank 0 alone writes."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from smddp import rank
from tf_smddp._training.model_variables import optimizers_of
from tf_smddp._training.optimizers.sharded_state import whole_state


class RankZeroCheckpoint(tf.keras.callbacks.ModelCheckpoint):
    """A `tf.keras.callbacks.ModelCheckpoint`, with its arguments, that saves on rank 0 only.

    The other ranks write no files, create no directories, print no messages, and leave `best` unchanged. So
    all ranks can have the same list of callbacks. If the optimizer's state is sharded, saving is collective,
    and all ranks must have this callback. With `save_best_only`, rank 0 decides by its own metrics, unless
    `MetricAverageCallback` comes before this callback.

    The other ranks do not wait for the file. Call `tf_smddp.barrier` before they read it.
    """

    # Keras calls it where a file may be due, on all ranks in the same batches.
    def _save_model(self, *args: Any, **kwargs: Any) -> None:
        with whole_state(*optimizers_of(self.model)):
            if rank() == 0:
                super()._save_model(*args, **kwargs)

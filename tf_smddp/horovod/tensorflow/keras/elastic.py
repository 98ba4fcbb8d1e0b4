"""The names of `horovod.tensorflow.keras.elastic`: a model's state, and callbacks that keep it up to date."""

from __future__ import annotations

from typing import Any, Dict, Optional

import tensorflow as tf

from tf_smddp.horovod.tensorflow.elastic import TensorFlowKerasState, run

__all__ = [
    "CommitStateCallback",
    "KerasState",
    "TensorFlowKerasState",
    "UpdateBatchStateCallback",
    "UpdateEpochStateCallback",
    "run",
]

_Logs = Optional[Dict[str, Any]]


class KerasState(TensorFlowKerasState):
    """A model, its optimizer, and named Python values as attributes."""

    def __init__(self, model: Any, optimizer: Any = None, **kwargs: Any) -> None:
        """As `TensorFlowKerasState`."""
        super().__init__(model, optimizer, **kwargs)


class CommitStateCallback(tf.keras.callbacks.Callback):
    """Commits a state after every so many batches, and after each epoch."""

    def __init__(self, state: Any, batches_per_commit: int = 1) -> None:
        """Makes the callback.

        Args:
            state: what is committed.
            batches_per_commit: after how many batches.
        """
        super().__init__()
        self._state = state
        self._batches_per_commit = batches_per_commit
        self._num_batches = 0  # since the last commit that followed a batch

    def on_train_begin(self, logs: _Logs = None) -> None:
        """Counts from here on."""
        self._num_batches = 0

    def on_train_batch_end(self, batch: int, logs: _Logs = None) -> None:
        """Commits if it is time."""
        self._num_batches += 1
        if self._num_batches >= self._batches_per_commit:
            self._num_batches = 0
            self._state.commit()

    def on_epoch_end(self, epoch: int, logs: _Logs = None) -> None:
        """Commits."""
        self._state.commit()


class UpdateBatchStateCallback(tf.keras.callbacks.Callback):
    """Keeps the index of the batch in `state.batch`, which is 0 again after each epoch."""

    def __init__(self, state: Any) -> None:
        """Makes the callback."""
        super().__init__()
        self._state = state

    def on_train_batch_end(self, batch: int, logs: _Logs = None) -> None:
        """Remembers the batch."""
        self._state.batch = batch

    def on_epoch_end(self, epoch: int, logs: _Logs = None) -> None:
        """The next epoch begins at its first batch."""
        self._state.batch = 0


class UpdateEpochStateCallback(tf.keras.callbacks.Callback):
    """Keeps the number of epochs that have ended in `state.epoch`, on top of those before this `fit`.

    As with Horovod, `fit` itself begins at epoch 0: `fit(epochs=total - state.epoch)`.
    """

    def __init__(self, state: Any) -> None:
        """Makes the callback."""
        super().__init__()
        self._state = state
        self._before = state.epoch

    def on_train_begin(self, logs: _Logs = None) -> None:
        """The epochs of this `fit` come on top of those before."""
        self._before = self._state.epoch

    def on_epoch_end(self, epoch: int, logs: _Logs = None) -> None:
        """Counts the epoch."""
        self._state.epoch = self._before + epoch + 1

"""LearningRateScheduleCallback and LearningRateWarmupCallback: learning rates that change with the epochs.

They are not collectives: every rank computes the same rate by itself.
"""

from __future__ import annotations

import math
from typing import Any, Callable, Dict, Optional, Union

import tensorflow as tf

from smddp import size
from tf_smddp._training.model_variables import trainable_of, value_of
from tf_smddp.keras.callbacks._momentum import MomentumCorrection


class LearningRateScheduleCallback(tf.keras.callbacks.Callback):
    """Sets the learning rate to `initial_lr * multiplier(epoch)` in the epochs from start to end.

        callbacks = [
            LearningRateWarmupCallback(0.1 * sdp.size(), warmup_epochs=5),
            LearningRateScheduleCallback(0.1 * sdp.size(), 1.0, start_epoch=5, end_epoch=30),
            LearningRateScheduleCallback(0.1 * sdp.size(), 0.1, start_epoch=30),
        ]

    The optimizer's learning rate must be a number, not a Keras LearningRateSchedule. Like Keras's own
    callbacks, this one adds the rate at the end of each epoch to the logs: `lr` in Keras 2, `learning_rate`
    in Keras 3.
    """

    def __init__(
        self,
        initial_lr: float,
        multiplier: Union[float, Callable[[float], float]],
        start_epoch: int = 0,
        end_epoch: Optional[int] = None,
        staircase: bool = True,
        momentum_correction: bool = True,
        steps_per_epoch: Optional[int] = None,
    ):
        """Makes the callback.

        Args:
            initial_lr: the rate for a multiplier of 1, scaled for all ranks together.
            multiplier: a number, or a function that returns a number for an epoch, counted from 0.
            start_epoch: the first epoch in which the rate is set.
            end_epoch: the first epoch in which the rate is no longer set; None: it is set to the end.
            staircase: whether the rate is set once at the beginning of each epoch. Otherwise it is set before
                each batch (with `steps_per_execution`, before each execution), for the epoch `epoch + batch /
                steps_per_epoch`. If the multiplier is a number, `staircase` is always True.
            momentum_correction: whether SGD's and RMSprop's momentum is adapted to each change of the rate
                (Goyal et al. 2017). It costs a pass over the optimizer's velocities for each change.
            steps_per_epoch: the number of batches in an epoch, for `staircase=False`; None: take it from
                Keras.

        Raises:
            ValueError: `initial_lr` is not a positive number.
        """
        super().__init__()
        if not isinstance(initial_lr, (int, float)) or not initial_lr > 0:
            raise ValueError(
                f"{type(self).__name__} needs initial_lr as a positive number, but got {initial_lr!r}."
            )
        self.initial_lr = float(initial_lr)
        self.multiplier = multiplier
        self.start_epoch = start_epoch
        self.end_epoch = end_epoch
        self.staircase = staircase or not callable(multiplier)
        self.steps_per_epoch = steps_per_epoch
        self._correction = MomentumCorrection() if momentum_correction else None
        self._epoch = 0
        # This callback reads no logs, so Keras 2 need not wait for each batch to convert them to numbers.
        self._supports_tf_logs = True

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Keras's hook."""
        self._epoch = epoch
        if self.staircase and self._in_range():
            self._set_rate(epoch)

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        """Keras's hook.

        Raises:
            ValueError: the number of batches in an epoch is not known.
        """
        if not self.staircase and self._in_range():
            self._set_rate(self._epoch + batch / self._steps())

    def on_epoch_end(self, epoch: int, logs: Optional[Dict[str, Any]] = None) -> None:
        """Keras's hook."""
        if logs is not None:
            optimizer = self.model.optimizer
            logs["lr" if hasattr(optimizer, "lr") else "learning_rate"] = value_of(optimizer.learning_rate)

    def _in_range(self) -> bool:
        return self.start_epoch <= self._epoch and (self.end_epoch is None or self._epoch < self.end_epoch)

    def _steps(self) -> int:
        known = self.params or {}
        steps = self.steps_per_epoch or known.get("steps")
        if not steps and known.get("samples") and known.get("batch_size"):  # Keras 2 in a v1 graph
            steps = math.ceil(known["samples"] / known["batch_size"])
        if not steps:
            raise ValueError(
                f"{type(self).__name__} changes the learning rate within an epoch, but Keras does not know "
                "how many batches an epoch of this data has. Give it steps_per_epoch."
            )
        return int(steps)

    def _set_rate(self, epoch: float) -> None:
        multiplier = self.multiplier(epoch) if callable(self.multiplier) else self.multiplier
        rate = self.initial_lr * multiplier
        optimizer = self.model.optimizer
        before = value_of(optimizer.learning_rate)
        optimizer.learning_rate = rate
        # The optimizer rounds the rate. Compare its own values, so that an unchanged rate counts as
        # unchanged.
        after = value_of(optimizer.learning_rate)
        if self._correction and before > 0 and after != before:
            self._correction.scale(optimizer, trainable_of(self.model), after / before)


class LearningRateWarmupCallback(LearningRateScheduleCallback):
    """Raises the learning rate from `initial_lr / size()` to `initial_lr`, batch by batch.

    This is the gradual warm-up of Goyal et al. 2017, "Accurate, Large Minibatch SGD": a rate for size() times
    the batch is too high for the first epochs. The last batch of the warm-up is the first one with the full
    `initial_lr`; afterwards this callback does not change the rate. With one rank, the rate is always
    `initial_lr`.
    """

    def __init__(
        self,
        initial_lr: float,
        warmup_epochs: int = 5,
        momentum_correction: bool = True,
        steps_per_epoch: Optional[int] = None,
        verbose: int = 0,
    ):
        """Makes the callback.

        Args:
            initial_lr: the rate at the end of the warm-up, scaled for all ranks together.
            warmup_epochs: the length of the warm-up in epochs; 0: there is no warm-up.
            momentum_correction: as in `LearningRateScheduleCallback`.
            steps_per_epoch: the number of batches in an epoch; None: take it from Keras.
            verbose: 1 to print a line at the end of the warm-up.

        Raises:
            ValueError: `initial_lr` is not a positive number, or `warmup_epochs` is negative.
        """
        if warmup_epochs < 0:
            raise ValueError(f"LearningRateWarmupCallback needs warmup_epochs >= 0, but got {warmup_epochs}.")
        super().__init__(
            initial_lr,
            self._fraction,
            end_epoch=warmup_epochs,
            staircase=False,
            momentum_correction=momentum_correction,
            steps_per_epoch=steps_per_epoch,
        )
        self.warmup_epochs = warmup_epochs
        self.verbose = verbose

    def on_epoch_end(self, epoch: int, logs: Optional[Dict[str, Any]] = None) -> None:
        """Keras's hook."""
        super().on_epoch_end(epoch, logs)
        if self.verbose and epoch == self.warmup_epochs - 1:
            rate = value_of(self.model.optimizer.learning_rate)
            print(f"\nEpoch {epoch + 1}: the warm-up is over, the learning rate is {rate:g}.")

    def _fraction(self, epoch: float) -> float:
        """Returns the fraction of `initial_lr` at the end of the batch that begins at `epoch`."""
        progress = (epoch + 1 / self._steps()) / self.warmup_epochs
        return 1 / size() + (1 - 1 / size()) * progress

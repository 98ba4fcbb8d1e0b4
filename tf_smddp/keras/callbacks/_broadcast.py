"""BroadcastGlobalVariablesCallback: all ranks start with the same variables, before the first batch.

The time of the broadcast depends on the model:

1. The model has its variables when `fit` begins (functional, Sequential with an Input, loaded, used before).
   They are broadcast where the first epoch begins, because other callbacks may load a checkpoint before.
2. The first batch creates the variables, while Keras traces the training step. Then `train_step` is wrapped
   for one call, which builds the model from the shapes of the batch and broadcasts before the step runs.
3. This is impossible, because the model cannot be called on the features alone, creates its variables in the
   training step, or has an optimizer that wraps one of tf.compat.v1.train. Then there are more variables
   after the first batch than before it, and all are broadcast again. The ranks are equal from then on, and
   all have the root's result of the first step.
"""

from __future__ import annotations

import contextlib
from typing import Any, Callable, List

import tensorflow as tf

from smddp.process_sets import some_leave_ranks_out
from tf_smddp._base.arguments import warn_about_device_hint
from tf_smddp._collectives.broadcast import broadcast_variables
from tf_smddp._guards.callbacks_beside import callbacks_of_fit, warn_within_fit
from tf_smddp._guards.drift import EpochCheck
from tf_smddp._guards.gradient_use import warn_if_never_reduced, warn_if_optimizer_never_reduces
from tf_smddp._training.join import join
from tf_smddp._training.local_sgd import synchronize_all
from tf_smddp._training.model_variables import (
    build_from,
    is_built,
    optimizers_of,
    trainable_of,
    value_of,
    variables_of,
    weights_of,
)
from tf_smddp._training.optimizers.arguments import reduces
from tf_smddp.keras.callbacks._join import Join


class BroadcastGlobalVariablesCallback(tf.keras.callbacks.Callback):
    """Gives the model's weights and the optimizer's variables the root's values, before the first batch.

    Collective: every rank must have it in its callbacks. It broadcasts in each `fit`, so rank 0 may load
    other weights in between. It builds the optimizer if necessary.

    It broadcasts trainable and non-trainable weights (such as moving averages). It does not broadcast
    metrics, or the state of Keras 3's seed generators, since each rank needs its own dropout. If a model has
    other optimizers than `model.optimizer`, call `broadcast_variables` for them.

    An optimizer of `LocalSGD` averages the weights at the end of each epoch, before the validation.

    After each epoch it compares the trained weights of all ranks, and warns if they differ: an optimizer does
    not reduce, or a rank has changed them by itself. If that takes more than one percent of the time, it
    leaves epochs out.

    It warns of other callbacks in the list that would act on each rank by themselves: EarlyStopping and
    ReduceLROnPlateau without MetricAverageCallback before them; ModelCheckpoint and BackupAndRestore on ranks
    other than 0.

    If the model cannot be built before its first batch, for example because a custom `train_step` creates the
    variables, it broadcasts after the first batch. If this first step matters, call the model once before
    `fit`, or give it an `Input`.
    """

    def __init__(self, root_rank: int = 0, device: str = ""):
        """Makes the callback.

        Args:
            root_rank: the rank whose values all ranks get.
            device: not supported; anything but '' is ignored with a warning.
        """
        super().__init__()
        self.root_rank = root_rank
        self._batches = 2  # batches that have begun in this fit; counts up to 2
        self._num_broadcast = 0
        self._epochs = 0  # that have begun in this fit
        self._in_epoch = False
        self._check = EpochCheck(type(self).__name__)
        # This callback reads no logs, so Keras 2 need not wait for each batch to convert them to numbers.
        self._supports_tf_logs = True
        warn_about_device_hint("BroadcastGlobalVariablesCallback", device)

    def set_model(self, model: Any) -> None:
        """Keras's hook. This is the last one before Keras 3 reads the model's `train_step`."""
        super().set_model(model)
        warn_within_fit()
        if not is_built(model):
            model.train_step = self._build_and_broadcast_before(model, model.train_step)

    def on_train_begin(self, logs: Any = None) -> None:
        """Keras's hook: a `fit` begins."""
        self._batches = 0
        self._num_broadcast = 0
        self._epochs = 0
        self._check.begin()

    # Weights are compared here and in on_train_end. At the end of an epoch, other callbacks may not have made
    # them equal yet, as Join does.
    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Keras's hook. Collective, but in the first epoch if the model is not built."""
        self._compare_weights()
        if self._epochs == 0 and is_built(self.model):
            self._broadcast(variables_of(self.model))
        self._epochs += 1
        self._in_epoch = True

    def on_train_end(self, logs: Any = None) -> None:
        """Keras's hook. Collective."""
        self._compare_weights()

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        """Keras's hook. Collective before the second batch if the first one has created variables."""
        self._after_the_first_batch()
        self._batches = max(self._batches, 1)

    # There is no on_train_batch_end, because Keras 3 would wait for the end of each batch to call it.

    def on_test_begin(self, logs: Any = None) -> None:
        """Keras's hook. Collective after the first batch if that has created variables; and with LocalSGD."""
        self._after_the_first_batch()
        self._average_weights()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Keras's hook. Collective after the first batch if that has created variables; and with LocalSGD."""
        self._after_the_first_batch()
        self._average_weights()

    def _after_the_first_batch(self) -> None:
        if self._batches == 1:
            self._batches = 2
            variables = variables_of(self.model)
            if len(variables) > self._num_broadcast:
                self._broadcast(variables)
            caller = "BroadcastGlobalVariablesCallback"
            warn_if_never_reduced(caller, "the first batch of fit() has ended")
            for optimizer in optimizers_of(self.model):
                if not reduces(optimizer) and value_of(optimizer.iterations) > 0:
                    warn_if_optimizer_never_reduces(caller, optimizer, trainable_of(self.model))

    def _average_weights(self) -> None:
        """Where the ranks may end an epoch at different times, Join or join() does it."""
        if self._in_epoch and not any(isinstance(each, Join) for each in callbacks_of_fit()):
            self._in_epoch = False
            if not join.is_open():
                synchronize_all([self.model])

    def _compare_weights(self) -> None:
        # The ranks of different process sets may train different numbers of epochs. In join(), they may end
        # them at different times.
        if self._epochs > 0 and not some_leave_ranks_out() and not join.is_open():
            self._check.run(weights_of(self.model), self._epochs)

    def _broadcast(self, variables: List[Any]) -> None:
        operation = broadcast_variables(variables, self.root_rank)
        if operation is not None:  # Keras 2 in a v1 graph
            tf.compat.v1.keras.backend.get_session().run(operation)
        self._num_broadcast = len(variables)
        if operation is None:
            for layer in self.model._flatten_layers():
                if hasattr(layer, "adapt_mean"):  # Normalization computes with a copy of its weights
                    layer.finalize_state()

    def _build_and_broadcast_before(self, model: Any, train_step: Callable[..., Any]) -> Callable[..., Any]:
        def first_train_step(data: Any) -> Any:
            if model.__dict__.get("train_step") is first_train_step:
                del model.train_step
                # If the model cannot be built, the training step raises the error.
                with contextlib.suppress(Exception):
                    build_from(model, data)
                with tf.init_scope():
                    self._broadcast(variables_of(model))
            return train_step(data)

        return first_train_step

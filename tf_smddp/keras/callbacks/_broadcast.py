"""BroadcastGlobalVariablesCallback: the same start on all ranks, before the first batch.

When there is something to broadcast depends on the model:

1. It has its variables when `fit` begins (functional, Sequential with an Input, loaded, used before). They
   are broadcast before the first batch, as late as can be: other callbacks may load a checkpoint before.
2. The first batch makes them, while Keras traces the training step. Then we trace along: `train_step` is
   wrapped for once, and builds the model from the shapes of the batch, and broadcasts, before it goes on. No
   step has been computed then.
3. That is impossible (the model cannot be called on the features alone; its variables are made in the train
   step; the optimizer wraps one of tf.compat.v1.train). Then there are more variables after the first batch
   than before it, and all are broadcast again. The ranks are equal from there on; of the first step, the
   root's result counts.
"""

from __future__ import annotations

import contextlib
from typing import Any, Callable, List

import tensorflow as tf

from tf_smddp._autograph import not_converted
from tf_smddp._broadcast import broadcast_variables
from tf_smddp._device_hints import warn_about_device_hint
from tf_smddp.keras.callbacks._variables import build_from, is_built, variables_of


class BroadcastGlobalVariablesCallback(tf.keras.callbacks.Callback):
    """Gives the model's weights and the optimizer's variables the root's values, before the first batch.

    Collective: every rank must have it in its callbacks. It broadcasts in each `fit`, so also what rank 0 has
    loaded between two of them. An optimizer that has no variables yet is built.

    The weights are those that train and those that do not (moving averages). Metrics are not broadcast, and
    neither is the state of Keras 3's seed generators: each rank needs dropout of its own. Optimizers that a
    model of yours keeps besides `model.optimizer` are left to you: `broadcast_variables`.

    If the model cannot be built before its first batch, it is broadcast after it: that is so when the ranks'
    first step makes the variables in a `train_step` of your own. Call the model once before `fit`, or give it
    an `Input`, if this first step matters.
    """

    def __init__(self, root_rank: int = 0, device: str = ""):
        """Makes the callback.

        Args:
            root_rank: the rank whose values all get.
            device: not supported; anything but '' is ignored with a warning.
        """
        super().__init__()
        self.root_rank = root_rank
        self._batches = 2  # that have begun in this fit, as far as 2
        self._num_broadcast = 0
        # We read no logs: Keras 2 need not wait for each batch to make numbers of them.
        self._supports_tf_logs = True
        warn_about_device_hint("BroadcastGlobalVariablesCallback", device)

    def set_model(self, model: Any) -> None:
        """Keras's hook. Not later: Keras 3 takes the model's `train_step` before `on_train_begin`."""
        super().set_model(model)
        if not is_built(model):
            model.train_step = self._build_and_broadcast_before(model, model.train_step)

    def on_train_begin(self, logs: Any = None) -> None:
        """Keras's hook: a `fit` begins."""
        self._batches = 0
        self._num_broadcast = 0

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        """Keras's hook. Collective before the first batch, if the model is built; see also the next."""
        if self._batches == 0:
            self._batches = 1
            if is_built(self.model):
                self._broadcast(variables_of(self.model))
        else:
            self._after_the_first_batch()

    # With on_train_batch_end, which would be the place, Keras 3 would wait for each batch to call it.

    def on_test_begin(self, logs: Any = None) -> None:
        """Keras's hook. Collective after the first batch, if that has made variables."""
        self._after_the_first_batch()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Keras's hook. Collective after the first batch, if that has made variables."""
        self._after_the_first_batch()

    def _after_the_first_batch(self) -> None:
        if self._batches == 1:
            self._batches = 2
            variables = variables_of(self.model)
            if len(variables) > self._num_broadcast:
                self._broadcast(variables)

    def _broadcast(self, variables: List[Any]) -> None:
        operation = broadcast_variables(variables, self.root_rank)
        if operation is not None:  # Keras 2 in a v1 graph
            tf.compat.v1.keras.backend.get_session().run(operation)
        self._num_broadcast = len(variables)

    def _build_and_broadcast_before(self, model: Any, train_step: Callable[..., Any]) -> Callable[..., Any]:
        @not_converted
        def first_train_step(data: Any) -> Any:
            if model.__dict__.get("train_step") is first_train_step:
                del model.train_step
                # An error here that is the model's fault comes again in the training step.
                with contextlib.suppress(Exception):
                    build_from(model, data)
                with tf.init_scope():
                    self._broadcast(variables_of(model))
            return train_step(data)

        return first_train_step

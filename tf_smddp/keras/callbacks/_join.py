"""Join: ranks that have different numbers of batches, for `fit`."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from tf_smddp._collectives.broadcast import broadcast_variables
from tf_smddp._guards.callbacks_beside import callbacks_of_fit
from tf_smddp._guards.gradient_use import warn_if_never_reduced
from tf_smddp._training.join import check_may_join, leave_and_return
from tf_smddp._training.local_sgd import after_join
from tf_smddp._training.model_variables import variables_of

# Callbacks of ours that are collective at the end of an epoch, where a rank may still be in the middle of it.
_AFTER_JOIN = {"MetricAverageCallback", "TensorBoardStats"}


class Join(tf.keras.callbacks.Callback):
    """Lets ranks have different numbers of batches in an epoch of `fit`, as `join` does for a loop.

    A rank that is at the end of its batches waits for the others, which go on without it. Then all ranks get
    the weights and the optimizer's variables of the one that had most batches, before the validation and the
    end of the epoch.

    Collective: every rank must have it in its callbacks, before MetricAverageCallback, TensorBoardStats and
    any other callback that runs collectives at the end of an epoch. Every rank must have a batch in each
    epoch, which Keras asks for.
    """

    def __init__(self) -> None:
        """Makes the callback."""
        super().__init__()
        self._in_epoch = False
        # This callback reads no logs, so Keras 2 need not wait for each batch to convert them to numbers.
        self._supports_tf_logs = True

    def set_model(self, model: Any) -> None:
        """Keras's hook.

        Raises:
            ValueError: MetricAverageCallback or TensorBoardStats is before it; or the state of the
                optimizer is sharded.
        """
        super().set_model(model)
        check_may_join([model], "Join()")
        for callback in callbacks_of_fit():
            if callback is self:
                return
            names = {ancestor.__name__ for ancestor in type(callback).__mro__}
            for name in names & _AFTER_JOIN:
                raise ValueError(
                    f"{name} is before Join in the callbacks: a rank would wait there for the others' "
                    "figures, while they wait for its gradients. Put Join() before it, on all ranks."
                )

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Keras's hook."""
        self._in_epoch = True

    def on_test_begin(self, logs: Any = None) -> None:
        """Keras's hook. Collective in an epoch of `fit`, before the validation."""
        self._join()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Keras's hook. Collective, unless there was a validation."""
        self._join()

    def _join(self) -> None:
        if not self._in_epoch:
            return
        self._in_epoch = False
        warn_if_never_reduced("Join", "the first epoch of fit() has ended")
        last = leave_and_return()
        variables = variables_of(self.model)
        operation = after_join([self.model], lambda: broadcast_variables(variables, last))
        if operation is not None:  # Keras 2 in a v1 graph
            tf.compat.v1.keras.backend.get_session().run(operation)

"""The names of `horovod.tensorflow.keras.callbacks`: tf_smddp's callbacks, with what Horovod's take."""

from __future__ import annotations

from typing import Any, List

from tf_smddp._guards import gradient_use
from tf_smddp.horovod.tensorflow._local import LocalVariables
from tf_smddp.keras import callbacks
from tf_smddp.keras.callbacks import (
    LearningRateScheduleCallback,
    LearningRateWarmupCallback,
    RankZeroCheckpoint,
)

__all__ = [
    "BestModelCheckpoint",
    "BroadcastGlobalVariablesCallback",
    "LearningRateScheduleCallback",
    "LearningRateWarmupCallback",
    "MetricAverageCallback",
]


class BroadcastGlobalVariablesCallback(callbacks.BroadcastGlobalVariablesCallback):
    """As tf_smddp's, but for variables that each rank has for itself."""

    def __init__(self, root_rank: int, device: str = "", local_variables: Any = None):
        """Makes the callback.

        Args:
            root_rank: the rank whose values all ranks get.
            device: no effect.
            local_variables: a variable or a list of them that are not broadcast.
        """
        super().__init__(root_rank)
        self._local = LocalVariables()
        # A variable can be iterated over, too, and would give its rows.
        if local_variables is not None:
            several = isinstance(local_variables, (list, tuple, set))
            for variable in local_variables if several else [local_variables]:
                self._local.add(variable)

    def register_local_var(self, var: Any) -> None:
        """Adds a variable that is not broadcast."""
        self._local.add(var)

    def _broadcast(self, variables: List[Any]) -> None:
        gradient_use.note_apart([variable for variable in variables if variable in self._local])
        super()._broadcast([variable for variable in variables if variable not in self._local])
        self._num_broadcast = len(variables)  # of all, by which it sees that the first batch has made more


class MetricAverageCallback(callbacks.MetricAverageCallback):
    """As tf_smddp's."""

    def __init__(self, device: str = ""):
        """Makes the callback; `device` has no effect."""
        super().__init__()


class BestModelCheckpoint(RankZeroCheckpoint):
    """Saves the model on rank 0 when `monitor` is better than ever before."""

    def __init__(
        self,
        monitor: str = "val_loss",
        verbose: int = 0,
        save_weights_only: bool = False,
        mode: str = "auto",
        save_freq: Any = "epoch",
        filepath: Any = None,
    ):
        """Makes the callback.

        Args:
            monitor: as in `tf.keras.callbacks.ModelCheckpoint`, as the rest up to `save_freq`.
            verbose: likewise.
            save_weights_only: likewise.
            mode: likewise.
            save_freq: likewise.
            filepath: the file, which Horovod's Spark estimators set.

        Raises:
            ValueError: `filepath` is not given.
        """
        if filepath is None:
            raise ValueError(
                "BestModelCheckpoint needs filepath=, the file to save to; there are no Spark estimators "
                "here that would choose one."
            )
        super().__init__(
            filepath,
            monitor=monitor,
            verbose=verbose,
            save_best_only=True,
            save_weights_only=save_weights_only,
            mode=mode,
            save_freq=save_freq,
        )

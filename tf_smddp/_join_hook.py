"""JoinHook: ranks that have different numbers of batches, for v1 sessions and estimators."""

from __future__ import annotations

import os
from typing import Any, List, Optional, Tuple

import tensorflow as tf

from tf_smddp import _runtime
from tf_smddp._broadcast import broadcast
from tf_smddp._immediately import immediately
from tf_smddp._join import leave_and_return


class JoinHook(tf.compat.v1.train.SessionRunHook):
    """Lets ranks end a training at different times, as `join` does for a loop.

        join = sdp.JoinHook(checkpoint_dir=folder if sdp.rank() == 0 else None)
        estimator.train(input_fn, hooks=[sdp.BroadcastGlobalVariablesHook(0), join])

    For `MonitoredTrainingSession` and `tf.estimator`. A rank whose input ends waits for the others, which go
    on without it. Then all ranks get the global variables of the one that had most steps. Collective: all
    ranks must have it.

    A session saves its last checkpoint before it ends its hooks, so rank 0's may be of fewer steps than the
    last rank's. With `checkpoint_dir`, the hook saves another one, with the variables that all have.
    """

    def __init__(self, checkpoint_dir: Optional[Any] = None):
        """Makes a hook; it can be used for several sessions, one after the other.

        Args:
            checkpoint_dir: where this rank's session saves checkpoints (an estimator's `model_dir`), so that
                the hook saves the last one there; None if this rank saves none.
        """
        # Without super().__init__(): there is none, and TensorFlow 2.15 would warn about estimators here.
        self._checkpoint = (
            None if checkpoint_dir is None else os.path.join(os.fspath(checkpoint_dir), "model.ckpt")
        )
        self._variables: List[tf.Variable] = []
        self._new_values: List[Tuple[tf.Tensor, tf.Operation]] = []

    def begin(self) -> None:
        """Adds to the default graph what assigns new values.

        Raises:
            RuntimeError: before `init`.
        """
        _runtime.require_initialized("JoinHook")
        self._variables = tf.compat.v1.global_variables()
        self._new_values = []
        for variable in self._variables:
            value = tf.compat.v1.placeholder(variable.dtype.base_dtype, variable.shape)
            self._new_values.append((value, variable.assign(value, read_value=False)))

    def end(self, session: Any) -> None:
        """Collective: waits for all ranks, and makes the variables equal.

        Raises:
            RuntimeError: a rank has ended without coming here, or the job has ended; the text says which.
        """
        last = leave_and_return()
        values = session.run(self._variables)
        with immediately("JoinHook"):
            values = [broadcast(value, last).numpy() for value in values]
        placeholders, assigned = zip(*self._new_values) if self._new_values else ((), ())
        session.run(assigned, dict(zip(placeholders, values)))
        if self._checkpoint is not None and _runtime.rank() != last:
            self._save(session, self._checkpoint)

    def _save(self, session: Any, path: str) -> None:
        savers = tf.compat.v1.get_collection(tf.compat.v1.GraphKeys.SAVERS)
        if not savers:
            raise RuntimeError(
                f"JoinHook would save {path}, but found no Saver in the graph: the session saves no "
                "checkpoints. Leave checkpoint_dir out."
            )
        savers[0].save(session, path, global_step=tf.compat.v1.train.get_global_step())

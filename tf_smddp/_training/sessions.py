"""Hooks of v1 sessions and estimators: the same start on all ranks, and ends at different times."""

from __future__ import annotations

import os
import warnings
from typing import Any, List, Optional, Tuple

import tensorflow as tf

from smddp import rank, runtime, size
from tf_smddp._base.arguments import warn_about_device_hint
from tf_smddp._collectives.broadcast import broadcast, broadcast_variables
from tf_smddp._graphs.call_site import immediately
from tf_smddp._training.join import leave_and_return


def broadcast_global_variables(root_rank: int) -> tf.Operation:
    """Returns the operation that gives all global variables of the default graph the root's values.

    Collective: every rank must run the operation, in a session and after the variables are initialized. It
    has the variables that exist at the time of the call, optimizer slots included; so call it once the graph
    is complete. `BroadcastGlobalVariablesHook` does both.

    Args:
        root_rank: the rank whose values all get.

    Returns:
        The operation; nothing is sent until it is run.

    Raises:
        RuntimeError: not in a v1 graph (there are no global variables in eager mode or a `tf.function`), or
            before `init`.
        TypeError: a variable's type is not supported, or `root_rank` is not an integer.
        ValueError: there is no such `root_rank`.
    """
    if tf.compat.v1.executing_eagerly_outside_functions():
        raise RuntimeError(
            "tf_smddp.broadcast_global_variables() was called in eager mode or a tf.function, where "
            "TensorFlow keeps no list of global variables. Call broadcast_variables(model.weights, "
            "root_rank) instead, and the same for the optimizer's variables."
        )
    return broadcast_variables(tf.compat.v1.global_variables(), root_rank)


# The ops that may reduce gradients.
_REDUCE = {"SmddpAllreduce", "SmddpGroupedAllreduce", "SmddpAllgather", "SmddpReducescatter"}


class BroadcastGlobalVariablesHook(tf.compat.v1.train.SessionRunHook):
    """Gives all global variables the root's values once they are initialized or restored.

        hooks = [sdp.BroadcastGlobalVariablesHook(0), tf.compat.v1.train.StopAtStepHook(last_step=1000)]
        with tf.compat.v1.train.MonitoredTrainingSession(checkpoint_dir=folder, hooks=hooks) as session:
            ...

    For `MonitoredTrainingSession` and `tf.estimator`. So that only rank 0 needs, and writes, the checkpoints:
    give a checkpoint folder (an estimator's `model_dir`) on rank 0 and None on the others. It belongs first
    in the list: a hook before it that looks at the global step still sees this rank's own.
    """

    def __init__(self, root_rank: int, device: str = ""):
        """Makes a hook; it can be used for several sessions, one after the other.

        Args:
            root_rank: the rank whose values all get.
            device: not supported; anything but '' is ignored with a warning.
        """
        # Without super().__init__(): there is none, and TensorFlow 2.15 would warn about estimators here.
        self.root_rank = root_rank
        self._operation: Optional[tf.Operation] = None
        warn_about_device_hint("BroadcastGlobalVariablesHook", device)

    def begin(self) -> None:
        """Adds the operation to the default graph: a new one each time, as an estimator has a graph per call.

        Raises:
            RuntimeError: before `init`, or not in a v1 graph.
            TypeError, ValueError: `root_rank` is no rank of the job.
        """
        self._operation = broadcast_global_variables(self.root_rank)

    def after_create_session(self, session: Any, coord: Any) -> None:
        """Collective: broadcasts, in the session that was just made, before its first step.

        Warns if the session's graph trains, and has no reduction.
        """
        session.run(self._operation)
        _warn_if_it_never_reduces(session.graph)


def _warn_if_it_never_reduces(graph: tf.Graph) -> None:
    if size() == 1 or rank() != 0 or any(op.type in _REDUCE for op in graph.get_operations()):
        return
    updates = [op for op in graph.get_operations() if op.type.startswith(("ResourceApply", "Apply"))]
    functions = graph.as_graph_def().library.function if updates else []
    if updates and not any(node.op in _REDUCE for function in functions for node in function.node_def):
        warnings.warn(
            f"BroadcastGlobalVariablesHook: this session's graph trains ({updates[0].name}), but reduces no "
            f"gradient, so each of the {size()} ranks trains a model of its own. Wrap the optimizer of this "
            "graph in DistributedOptimizer. model_to_estimator() makes a plain one of the model's: use a "
            "model_fn.",
            stacklevel=2,
        )


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
        runtime.require_initialized("JoinHook")
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
        if self._checkpoint is not None and runtime.rank() != last:
            self._save(session, self._checkpoint)

    def _save(self, session: Any, path: str) -> None:
        savers = tf.compat.v1.get_collection(tf.compat.v1.GraphKeys.SAVERS)
        if not savers:
            raise RuntimeError(
                f"JoinHook would save {path}, but found no Saver in the graph: the session saves no "
                "checkpoints. Leave checkpoint_dir out."
            )
        savers[0].save(session, path, global_step=tf.compat.v1.train.get_global_step())

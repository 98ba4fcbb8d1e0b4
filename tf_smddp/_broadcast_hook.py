"""BroadcastGlobalVariablesHook: the same start on all ranks, for v1 sessions and estimators."""

from __future__ import annotations

import warnings
from typing import Any, Optional

import tensorflow as tf

from tf_smddp._broadcast_global_variables import broadcast_global_variables
from tf_smddp._device_hints import warn_about_device_hint
from tf_smddp._runtime import rank, size

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

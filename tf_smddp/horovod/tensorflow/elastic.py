"""The names of `horovod.tensorflow.elastic`: a training that outlives hosts, with states that are committed.

Horovod replaces ranks while the others go on. Here `smddprun --min-np` starts the job again with the hosts
that are left, and `run` goes on at the last state that was committed to the disk.
"""

from __future__ import annotations

import functools
import os
import pickle
from typing import Any, Callable, Dict, List, Optional, Sequence

import tensorflow as tf

import tf_smddp as sdp
from tf_smddp._base.arguments import unwrapped
from tf_smddp._training.local_sgd import synchronize_all
from tf_smddp._training.model_variables import variables_in

__all__ = ["ObjectState", "TensorFlowKerasState", "TensorFlowState", "run"]

_FOLDER = "SMDDP_STATE_DIR"
_RESTARTS = "SMDDP_RESTART_COUNT"  # set by smddprun --max-restarts


def run(func: Callable[..., Any]) -> Callable[..., Any]:
    """Has a training function begin with the state that was committed last; a decorator.

    The function that it returns is collective. If SMDDP_STATE_DIR names a folder with a committed state, the
    state that is passed to it gets those values, and its reset callbacks are called. Then all ranks get rank
    0's state, and `func` is called. Its errors are not caught: they end the process, and smddprun starts the
    job again.

    Args:
        func: takes a state of this module, and any other arguments.

    Returns:
        A function with the arguments of `func`, which returns what that returns.

    Raises:
        RuntimeError: when it is called under `smddprun --max-restarts` without SMDDP_STATE_DIR, or a rank
            could not read the state.
    """

    @functools.wraps(func)
    def wrapper(state: Any, *args: Any, **kwargs: Any) -> Any:
        state._resume()
        state.sync()
        return func(state, *args, **kwargs)

    return wrapper


class _State:
    """Variables and named Python values; `commit` remembers them in memory and, where it may, on the disk."""

    def __init__(
        self, variables: Callable[[], Sequence[Any]], tracked: Dict[str, Any], values: Dict[str, Any]
    ) -> None:
        """`tracked`: what has the variables, for a checkpoint."""
        self._variables = variables
        self._tracked = tracked
        self._names = list(values)
        self._reset_callbacks: List[Callable[[], Any]] = []
        self._commits = 0  # on the disk
        self._resumed = False
        self._checkpoint: Optional[sdp.Checkpoint] = None
        for name, value in values.items():
            setattr(self, name, value)
        self.save()

    def save(self) -> None:
        """Remembers this rank's state in its memory."""
        self._saved: List[Any] = [variable.numpy() for variable in self._variables()]
        self._saved_values = {name: getattr(self, name) for name in self._names}

    def commit(self) -> None:
        """Remembers the state as `save` does; with SMDDP_STATE_DIR, rank 0 also writes its own to the disk.

        Collective then: optimizers of `LocalSGD` average the weights first. When it returns, the state is
        written; the one before it is deleted after that.

        Raises:
            RuntimeError: rank 0 could not write (raised on all ranks).
        """
        checkpoint = self._on_disk()
        if checkpoint is not None:
            synchronize_all(list(self._tracked.values()))  # as Checkpoint.save does
        self.save()
        if checkpoint is not None:
            self._pickled.assign(pickle.dumps(self._saved_values))
            self._commits += 1
            checkpoint.save(self._commits)

    def check_host_updates(self) -> None:
        """Does nothing: a host that comes back is taken in when the job starts again."""

    def register_reset_callbacks(self, callbacks: Sequence[Callable[[], Any]]) -> None:
        """Has `run` call these when the job has started again, with its state, on all ranks.

        The number of ranks may be another one: a callback sets the learning rate, for example.

        Args:
            callbacks: functions without arguments.
        """
        self._reset_callbacks += callbacks

    def _on_disk(self) -> Optional[sdp.Checkpoint]:
        folder = os.environ.get(_FOLDER)
        if folder and self._checkpoint is None:
            self._pickled = tf.Variable(b"", dtype=tf.string)
            self._checkpoint = sdp.Checkpoint(folder, max_to_keep=1, values=self._pickled, **self._tracked)
        return self._checkpoint

    def _resume(self) -> None:
        """Takes the state that an earlier start has committed last, if there is one. Collective."""
        checkpoint = self._on_disk()
        if checkpoint is None:
            if _RESTARTS in os.environ:
                raise RuntimeError(
                    "hvd.elastic.run needs a folder for the state, since smddprun --max-restarts may start "
                    f"this job again: give -x {_FOLDER}=FOLDER. It must be another one for each training, "
                    "and in a file system of all hosts on which rank 0 may be."
                )
            return
        if self._resumed:  # what this process has done since then is newer
            return
        self._resumed = True
        self._commits = checkpoint.restore() or 0
        if self._commits:
            for name, value in pickle.loads(self._pickled.numpy()).items():
                setattr(self, name, value)
            for callback in self._reset_callbacks:
                callback()

    def restore(self) -> None:
        """Goes back to what `save`, `commit` or `sync` has remembered last."""
        for variable, value in zip(self._variables(), self._saved):
            variable.assign(value)
        for name, value in self._saved_values.items():
            setattr(self, name, value)

    def sync(self) -> None:
        """Gives all ranks rank 0's state, and remembers it. Collective."""
        if self._variables():
            sdp.broadcast_variables(self._variables(), root_rank=0)
        values = sdp.broadcast_object({name: getattr(self, name) for name in self._names})
        for name, value in values.items():
            setattr(self, name, value)
        self.save()


class ObjectState(_State):
    """Named Python values as attributes."""

    def __init__(self, bcast_object: Any, get_rank: Any, **kwargs: Any) -> None:
        """Remembers the state as it is.

        Args:
            bcast_object: no effect.
            get_rank: no effect.
            **kwargs: Python values by name, which can be pickled.
        """
        super().__init__(list, {}, kwargs)


class TensorFlowKerasState(_State):
    """A model, its optimizer, and named Python values as attributes."""

    def __init__(self, model: Any, optimizer: Any = None, backend: Any = None, **kwargs: Any) -> None:
        """Remembers the state as it is.

        Args:
            model: a model of Keras that has its variables.
            optimizer: None is the model's.
            backend: no effect; there are no sessions here.
            **kwargs: Python values by name, such as `epoch=0`.

        Raises:
            ValueError: the model has no variables yet.
        """
        if not model.built:
            raise ValueError(
                "TensorFlowKerasState needs a model that is built: call model.build(input_shape)."
            )
        self.model = model
        self.optimizer = optimizer if optimizer is not None else getattr(model, "optimizer", None)
        parts = {"model": self.model, "optimizer": self.optimizer}
        super().__init__(
            self._all_variables, {name: each for name, each in parts.items() if each is not None}, kwargs
        )

    def _all_variables(self) -> List[Any]:
        found = variables_in(list(self._tracked.values()), "TensorFlowKerasState")
        return [each for each in found if hasattr(each, "assign")]


class TensorFlowState(_State):
    """A list of variables, and named Python values as attributes; outside of v1 graphs."""

    def __init__(self, variables: Optional[Sequence[Any]] = None, session: Any = None, **kwargs: Any) -> None:
        """Remembers the state as it is.

        Args:
            variables: the variables.
            session: no effect.
            **kwargs: Python values by name.

        Raises:
            ValueError: there are no variables.
            NotImplementedError: in a v1 graph.
        """
        if not tf.compat.v1.executing_eagerly_outside_functions():
            raise NotImplementedError(
                "hvd.elastic.TensorFlowState reads its variables, which have no values in a v1 graph. Use "
                "tf_smddp.BroadcastGlobalVariablesHook and tf.compat.v1.train.MonitoredTrainingSession's "
                "checkpoints on rank 0."
            )
        if not variables:
            raise ValueError("TensorFlowState needs variables: name them, as in TensorFlowState([weight]).")
        self.variables = list(variables)
        tracked = {"variables": [unwrapped(each) for each in self.variables]}
        super().__init__(lambda: self.variables, tracked, kwargs)

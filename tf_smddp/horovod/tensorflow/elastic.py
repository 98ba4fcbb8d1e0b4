"""The names of `horovod.tensorflow.elastic`: states that are committed, restored and synced in one job.

A job of tf_smddp keeps its ranks from the beginning to the end. `run`, in which Horovod replaces ranks while
the others go on, is refused; `smddprun --max-restarts` with `tf_smddp.Checkpoint` starts a failed job again.
"""

from __future__ import annotations

from typing import Any, Callable, Dict, List, NoReturn, Optional, Sequence

import tensorflow as tf

import tf_smddp as sdp
from tf_smddp._training.model_variables import variables_of

__all__ = ["TensorFlowKerasState", "TensorFlowState", "run"]


def run(func: Callable[..., Any]) -> NoReturn:
    """Refused: ranks do not join or leave a running job.

    Raises:
        NotImplementedError: always; the text names the remedy.
    """
    raise NotImplementedError(
        f"hvd.elastic.run({getattr(func, '__name__', func)!r}): a job of tf_smddp keeps its ranks. Start "
        "it with 'smddprun --max-restarts N', call tf_smddp.Checkpoint.save() where the script calls "
        "commit(), and restore() at its beginning."
    )


class _State:
    """Variables and named Python values; `commit` remembers them in this process's memory."""

    def __init__(self, variables: Callable[[], Sequence[Any]], values: Dict[str, Any]) -> None:
        self._variables = variables
        self._names = list(values)
        for name, value in values.items():
            setattr(self, name, value)
        self.save()

    def save(self) -> None:
        """Remembers this rank's state."""
        self._saved: List[Any] = [variable.numpy() for variable in self._variables()]
        self._saved_values = {name: getattr(self, name) for name in self._names}

    def commit(self) -> None:
        """As `save`. The memory goes with the process: `tf_smddp.Checkpoint` writes files."""
        self.save()

    def check_host_updates(self) -> None:
        """Does nothing: hosts do not join or leave a running job."""

    def register_reset_callbacks(self, callbacks: Sequence[Callable[[], Any]]) -> None:
        """Does nothing: Horovod calls these when the number of ranks has changed, which it does not here.

        A job that starts again runs the script from its beginning, where `size()` is the new number.
        """

    def restore(self) -> None:
        """Goes back to what `save`, `commit` or `sync` has remembered last."""
        for variable, value in zip(self._variables(), self._saved):
            variable.assign(value)
        for name, value in self._saved_values.items():
            setattr(self, name, value)

    def sync(self) -> None:
        """Gives all ranks rank 0's state, and remembers it. Collective."""
        sdp.broadcast_variables(self._variables(), root_rank=0)
        values = sdp.broadcast_object({name: getattr(self, name) for name in self._names})
        for name, value in values.items():
            setattr(self, name, value)
        self.save()


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
        super().__init__(self._all_variables, kwargs)

    def _all_variables(self) -> List[Any]:
        own = getattr(self.model, "optimizer", None)
        found = variables_of(self.model) if self.optimizer is own else list(self.model.weights)
        if self.optimizer is not None and self.optimizer is not own:
            variables = self.optimizer.variables
            found += list(variables() if callable(variables) else variables)
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
        super().__init__(lambda: self.variables, kwargs)

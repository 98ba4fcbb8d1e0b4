"""Where collectives may be called: after init, and not in the functions that tf.data runs.

tf.data decides how often, how far ahead and in which order its functions run, so a collective in one would
meet another one on each rank. A kernel cannot tell that it runs there (the body of a loop over a dataset
runs in the same way), but the graph can. So a collective is refused

* when it is called in Python while such a function is traced;
* when such a function calls one that was traced before and has a collective: when TensorFlow ends its graph;
* when Python code that tf.data runs (`tf.py_function`, `tf.numpy_function`, a generator) calls a collective,
  or a `tf.function` that has one: at each call, on whatever thread.

`immediately` runs collectives at once, whatever mode TensorFlow is in, for what is Python's and no graph's.
"""

from __future__ import annotations

import contextlib
import functools
import threading
from typing import Any, Callable, Iterator, Optional

import tensorflow as tf

from smddp import runtime
from tf_smddp._base import tensorflow_private
from tf_smddp._graphs import function_graphs
from tf_smddp._guards import gpu_warnings

# tf.data names the graphs of the functions that it is given "Dataset_map_<name>" and so on. A loop over a
# dataset inside a tf.function is one of them, too, and the only one whose order is that of the program.
_DATASET_PREFIXES = ("Dataset_", "tf_data_")
_LOOP_BODY = "Dataset_scan_scan_body"
_PYTHON_OPS = frozenset(("EagerPyFunc", "PyFunc", "PyFuncStateless"))


class _Running(threading.local):
    # The name of the tf.data function whose Python code this thread runs.
    function: Optional[str] = None


_running = _Running()


def check_call_site(caller: str) -> None:
    """Raises a RuntimeError that names `caller` and the remedy, unless it may be called here."""
    runtime.require_initialized(caller)
    gpu_warnings.warn_of_unseen_gpus()
    if tf.executing_eagerly():
        if _running.function is not None:
            raise _refusal(f"tf_smddp.{caller}() was called", _running.function)
        return
    graph = tf.compat.v1.get_default_graph()
    while graph is not None:
        if _is_dataset_function(graph):
            raise _refusal(f"tf_smddp.{caller}() was called", graph.name)
        graph = getattr(graph, "outer_graph", None)


def _is_dataset_function(graph: Any) -> bool:
    name = getattr(graph, "name", None) or ""
    return name.startswith(_DATASET_PREFIXES) and name != _LOOP_BODY


def _refusal(what: str, function: str) -> RuntimeError:
    return RuntimeError(
        f"{what} in a function that tf.data runs ({function}). tf.data decides how often, in which "
        "order and how far ahead such a function runs, and would do so differently on each rank. Call it on "
        "what the dataset yields: in the training step, or in the loop over the dataset."
    )


def _check_op(op: tf.Operation) -> None:
    """Refuses an op of tf.data's that runs a collective, and has its Python code refuse them."""
    if not _is_dataset_function(op.graph):
        return
    for run in function_graphs.ops_run_by(op):
        if run.type in function_graphs.COLLECTIVES:
            raise _refusal(
                f"the collective '{run.name}' ({run.type}) of {run.graph.name}() is called", op.graph.name
            )
        if run.type in _PYTHON_OPS:
            _watch_function_calls()
            tensorflow_private.wrap_python_function(
                run, functools.partial(_refusing, dataset_function=op.graph.name)
            )


def _refusing(function: Callable[..., Any], dataset_function: str) -> Callable[..., Any]:
    """The Python function, in which collectives are refused on the thread that runs it."""

    @functools.wraps(function)
    def refusing(*args: Any) -> Any:
        before, _running.function = _running.function, dataset_function
        try:
            return function(*args)
        finally:
            _running.function = before

    return refusing


@functools.cache
def _watch_function_calls() -> None:
    tensorflow_private.before_each_function_call(_check_function_call)


def _check_function_call(function: Any) -> None:
    if _running.function is not None:
        for op in function_graphs.ops_of(function.graph):
            if op.type in function_graphs.COLLECTIVES:
                what = f"the collective '{op.name}' ({op.type}) of {op.graph.name}() was called"
                raise _refusal(what, _running.function)


tensorflow_private.for_each_op_of_functions(_check_op)


def check_can_act(caller: str) -> None:
    """Raises a RuntimeError that names `caller` and the remedy, unless collectives can run at once here.

    They cannot before `init`, in a function that tf.data runs, and while a `tf.function` is traced.
    """
    check_call_site(caller)
    if not tf.executing_eagerly() and tf.compat.v1.get_default_graph().building_function:
        raise RuntimeError(
            f"tf_smddp.{caller}() was called while a function is traced "
            f"({tf.compat.v1.get_default_graph().name}). It acts at once, which a graph cannot. Call it "
            "outside of the tf.function; inside of it use a collective of tensors, such as broadcast(), "
            "allgather() or tf_smddp.barrier()."
        )


@contextlib.contextmanager
def immediately(caller: str) -> Iterator[None]:
    """Within it ops run eagerly, on the CPU: also in a v1 script, beside its graph, without a session.

    TensorFlow can run ops eagerly in a v1 script too; `disable_eager_execution` only changes the default. So
    nothing needs names to meet by, or a session of its own: the program's order is there.

    Raises:
        RuntimeError: as `check_can_act`.
    """
    check_can_act(caller)
    with tensorflow_private.eager_mode(), tf.device("CPU:0"):
        yield

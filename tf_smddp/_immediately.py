"""Runs collectives at once, whatever mode TensorFlow is in: for what is Python's and not a graph's."""

from __future__ import annotations

import contextlib
from typing import Iterator

import tensorflow as tf

from tf_smddp import _tensorflow_private
from tf_smddp._call_site import check_call_site


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
    with _tensorflow_private.eager_mode(), tf.device("CPU:0"):
        yield

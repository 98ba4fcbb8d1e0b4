"""Counts the threads of TensorFlow's that compiled functions with collectives may block.

Place in the stack: below _compiled_order.py and _program_order.py, which see such functions being traced. Not
here: what the figures are for (Note [Blocked threads], kernels/tf/xla/blocked_calls.h).
"""

from __future__ import annotations

import functools
import os
import threading
from typing import Any

import tensorflow as tf

from tf_smddp import _functions, _library, _tensorflow_private

_lib = _library.load()[1]
_LAUNCHES = "_tf_smddp_launches_programs"  # set on a graph: the result of _launches_programs
_lock = threading.Lock()
_counting = False  # guarded by _lock
_steps = 0  # that run now; guarded by _lock


def report_pools() -> None:
    """Reports the sizes of the thread pools, which are fixed when the first function is traced.

    v1 sessions have pools of their own, so in a v1 graph nothing is reported.
    """
    if tf.compat.v1.executing_eagerly_outside_functions():
        _report_pools()


@functools.cache
def _report_pools() -> None:
    threading_config = tf.config.threading
    inter_op = threading_config.get_inter_op_parallelism_threads()
    intra_op = threading_config.get_intra_op_parallelism_threads()
    _lib.tf_smddp_set_thread_pools(
        _size(inter_op, "TF_NUM_INTEROP_THREADS"), _size(intra_op, "TF_NUM_INTRAOP_THREADS")
    )


def _size(asked: int, variable: str) -> int:
    """The size of a pool: what the program has asked for, or the environment, or TensorFlow's own choice."""
    found = os.environ.get(variable, "")
    return asked or (int(found) if found.isdecimal() else 0) or len(os.sched_getaffinity(0))


def count_graph_steps() -> None:
    """Counts, from now on, the calls under way of functions whose graphs launch compiled ones. Any thread."""
    global _counting
    with _lock:
        if not _counting:
            _tensorflow_private.around_each_function_call(_begin, _end)
            _counting = True


def _begin(function: Any) -> bool:
    """Whether the call of the function is counted, and `_end` is to be called after it."""
    launches = _launches_programs(function.graph)
    if launches:
        _count(1)
    return launches


def _end() -> None:
    _count(-1)


def _count(more: int) -> None:
    global _steps
    with _lock:
        _steps += more
        _lib.tf_smddp_set_graph_steps(_steps)


def _launches_programs(graph: Any) -> bool:
    """Whether the function calls a compiled one with collectives."""
    known = getattr(graph, _LAUNCHES, None)
    if known is None:
        known = any(
            _functions.calls_compiled(op) and _functions.calls_what_draws(op)
            for op in _functions.ops_of(graph)
        )
        setattr(graph, _LAUNCHES, known)
    return bool(known)

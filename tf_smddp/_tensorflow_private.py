"""The private parts of TensorFlow that the package uses, each behind a function that says why.

Place in the stack: at the bottom, beside _library.py; nothing else in the package names a private attribute
of TensorFlow's or imports from `tensorflow.python`. Works with TensorFlow 2.15 to 2.21. Not here: the C++
ones (kernels/tf/tensorflow_private.h).
"""

from __future__ import annotations

import functools
from typing import Any, Callable

import tensorflow as tf
from tensorflow.python.eager.polymorphic_function import atomic_function
from tensorflow.python.ops import script_ops

# Set on a Python function that has been wrapped, to the other one of the two, which lives as long.
_WRAPPED = "_tf_smddp_wrapped"


def before_each_function_call(check: Callable[[Any], None]) -> None:
    """Has `check(function)` called before each call of a `tf.function` from eager mode, from now on.

    The function has its graph as `function.graph`.

    A public hook that runs before a function is executed would replace it; `tf.debugging`'s run after it.
    """
    call_flat = atomic_function.AtomicFunction.call_flat

    @functools.wraps(call_flat)
    def checked(self: Any, *args: Any) -> Any:
        if tf.executing_eagerly():
            check(self)
        return call_flat(self, *args)

    atomic_function.AtomicFunction.call_flat = checked


def wrap_python_function(op: tf.Operation, wrap: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
    """Wraps the Python function that `op`, a `tf.py_function` or `tf.numpy_function`, runs; once.

    TensorFlow has no public way from such an op to its function, nor one to tell where the op runs.
    """
    token = tf.compat.as_str(op.get_attr("token"))
    function = script_ops._py_funcs.get(token)
    if function is None or hasattr(function, _WRAPPED):
        return
    if isinstance(function, script_ops.EagerFunc):
        setattr(function, _WRAPPED, function._func)
        function._func = wrap(function._func)
    else:
        # The registry holds functions weakly.
        wrapped = wrap(function)
        setattr(function, _WRAPPED, wrapped)
        setattr(wrapped, _WRAPPED, function)
        script_ops._py_funcs._funcs[token] = wrapped

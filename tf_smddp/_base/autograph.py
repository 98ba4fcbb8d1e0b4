"""Keeps AutoGraph away from our own functions."""

from __future__ import annotations

import functools
from typing import Any, Callable, TypeVar, cast

import tensorflow as tf

Function = TypeVar("Function", bound=Callable[..., Any])


def not_converted(function: Function) -> Function:
    """Decorator for what users call inside a `tf.function`: AutoGraph runs it as it is.

    Our functions decide in Python alone. Converting them would slow down each first trace, and would leave a
    file per function in the temporary directory when the process is killed.
    """
    in_a_function = tf.autograph.experimental.do_not_convert(function)

    # Takes over the mark by which AutoGraph knows what not to convert. Eager calls need no more.
    @functools.wraps(in_a_function)
    def called(*args: Any, **kwargs: Any) -> Any:
        return (function if tf.executing_eagerly() else in_a_function)(*args, **kwargs)

    return cast(Function, called)

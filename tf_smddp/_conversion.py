"""to_tensor: converts what users hand over as a tensor.

Everything public that converts an argument does it here, so that a value which cannot be converted is the
same error in every mode: TensorFlow's own depends on the mode, and does not say whose argument it was.
"""

from __future__ import annotations

import reprlib
from typing import Any, Optional

import tensorflow as tf

_shortened = reprlib.Repr()
_shortened.maxother = _shortened.maxstring = 80


def to_tensor(value: Any, caller: str, what: str = "a tensor") -> tf.Tensor:
    """Returns the value as a tensor.

    Args:
        value: a user's.
        caller: the user's function, for errors.
        what: what it takes there, for errors.

    Raises:
        TypeError: TensorFlow cannot make a tensor of it.
    """
    try:
        return tf.convert_to_tensor(value)
    except (TypeError, ValueError) as error:
        raise TypeError(
            f"tf_smddp.{caller}() takes {what}, or what becomes one (a variable, a NumPy array, numbers), "
            f"but got {_shortened.repr(value)} of type {type(value).__name__}. Make numbers of one type and "
            "a rectangular shape of it first; broadcast_object() and allgather_object() take any object."
        ) from error


def unwrapped(variable: Any) -> Any:
    """Returns the tf.Variable that a variable of Keras 3 wraps; anything else as it is."""
    if isinstance(variable, tf.Variable):
        return variable
    wrapped = getattr(variable, "_value", None)
    return wrapped if isinstance(wrapped, tf.Variable) else variable


def source_label(source: Any) -> str:
    """The name that messages give a variable, or its gradient: the variable's name; '' for a tensor."""
    path: Optional[Any] = getattr(source, "path", None)  # Keras 3; its `name` is only the last part.
    if isinstance(path, str):
        return path
    return source.name.split(":")[0] if isinstance(source, tf.Variable) else ""

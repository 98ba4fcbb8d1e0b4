"""What users hand over: what becomes a tensor, variables, and arguments that have no meaning here.

Everything public that converts an argument does it here, so that a value which cannot be converted is the
same error in every mode: TensorFlow's own depends on the mode, and does not say whose argument it was.
"""

from __future__ import annotations

import reprlib
import warnings
from typing import Any, Optional

import tensorflow as tf

from tf_smddp._base import op_library

# All collectives take the same types (ops/smddp_ops.cc).
_DTYPES = op_library.types_of("SmddpAllreduce", "T")

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


def check_dtype(tensor: tf.Tensor, caller: str, what: str = "a tensor") -> None:
    """Raises a TypeError that names the dtype, and `what` has it, unless the ops take it."""
    if tensor.dtype.base_dtype not in _DTYPES:
        names = ", ".join(dtype.name for dtype in _DTYPES)
        remedy = (
            " broadcast_object() and allgather_object() take strings." if tensor.dtype == tf.string else ""
        )
        raise TypeError(
            f"tf_smddp.{caller}() does not take {what} of type {tensor.dtype.name}, only: {names}.{remedy}"
        )


def to_rows(tensor: Any, caller: str, scalar_is_a_row: bool = False) -> tf.Tensor:
    """Returns the tensor, converted to one if need be; it has at least one dimension, or an unknown number.

    Args:
        tensor: a user's.
        caller: the user's function, for errors.
        scalar_is_a_row: a scalar becomes a vector; also where the number of dimensions is unknown.

    Raises:
        TypeError: it is ragged or sparse, cannot be converted, or is of a type that the ops don't take.
        ValueError: it is a scalar, and may not be.
    """
    if isinstance(tensor, (tf.RaggedTensor, tf.SparseTensor, tf.IndexedSlices)):
        raise TypeError(
            f"{caller}() does not take {type(tensor).__name__}. Make it dense, or hand over its parts one by "
            "one."
        )
    rows = to_tensor(tensor, caller)
    check_dtype(rows, caller)
    if scalar_is_a_row and rows.shape.rank is None:
        return tf.reshape(
            rows, tf.concat([tf.ones([1 - tf.minimum(tf.rank(rows), 1)], tf.int32), tf.shape(rows)], 0)
        )
    if scalar_is_a_row and rows.shape.rank == 0:
        return tf.reshape(rows, [1])
    if rows.shape.rank == 0:
        raise ValueError(f"{caller}() needs a tensor with rows, but got a scalar. Reshape it to [1].")
    return rows


def unwrapped(variable: Any) -> Any:
    """Returns the tf.Variable that a variable of Keras 3 wraps; anything else as it is."""
    if isinstance(variable, tf.Variable):
        return variable
    wrapped = getattr(variable, "_value", None)
    return wrapped if isinstance(wrapped, tf.Variable) else variable


# An attribute of a variable that is this rank's part of a sharded state, so that ranks have other values.
PART = "_tf_smddp_part"


def is_part(variable: Any) -> bool:
    """Whether ranks have parts of a whole in this variable, and so other values."""
    return hasattr(unwrapped(variable), PART)


def source_label(source: Any) -> str:
    """The name that messages give a variable, or its gradient: the variable's name; '' for a tensor."""
    path: Optional[Any] = getattr(source, "path", None)  # Keras 3; its `name` is only the last part.
    if isinstance(path, str):
        return path
    return source.name.split(":")[0] if isinstance(source, tf.Variable) else ""


_warned_of_device = False


def warn_about_device_hints(caller: str, device_dense: str, device_sparse: str) -> None:
    """Warns, once in a process, if one of the two is set: SMDDP did not support them either."""
    global _warned_of_device
    if _warned_of_device or not (device_dense or device_sparse):
        return
    _warned_of_device = True
    warnings.warn(
        f"{caller}: device_dense={device_dense!r} and device_sparse={device_sparse!r} are ignored: "
        "gradients are reduced where they are. Leave the arguments out.",
        stacklevel=3,
    )


def warn_about_device_hint(caller: str, device: str) -> None:
    """Warns, once in a process, if `device` is set: the one argument that broadcasts have."""
    global _warned_of_device
    if _warned_of_device or not device:
        return
    _warned_of_device = True
    warnings.warn(
        f"{caller}: device={device!r} is ignored: variables are broadcast where they are. "
        "Leave the argument out.",
        stacklevel=3,
    )

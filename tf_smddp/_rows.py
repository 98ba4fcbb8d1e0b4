"""Tensors as rows, which is what gathering and scattering collectives move."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from tf_smddp import _op_library
from tf_smddp._conversion import to_tensor


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
    _op_library.check_dtype(rows, caller)
    if scalar_is_a_row and rows.shape.rank is None:
        return tf.reshape(
            rows, tf.concat([tf.ones([1 - tf.minimum(tf.rank(rows), 1)], tf.int32), tf.shape(rows)], 0)
        )
    if scalar_is_a_row and rows.shape.rank == 0:
        return tf.reshape(rows, [1])
    if rows.shape.rank == 0:
        raise ValueError(f"{caller}() needs a tensor with rows, but got a scalar. Reshape it to [1].")
    return rows

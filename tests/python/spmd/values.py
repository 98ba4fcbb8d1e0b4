"""Inputs that are exact in every type, and what the ranks' reductions of them must be.

Small integers: a sum or a product of three ranks' values is exact in float16 (up to 2048), bfloat16 (256),
int8 (127).
"""

from typing import List, Tuple

import numpy as np
import tensorflow as tf

import tf_smddp as sdp

FLOAT_TYPES = (tf.float16, tf.bfloat16, tf.float32, tf.float64)
SIGNED_TYPES = (tf.int8, tf.int16, tf.int32, tf.int64)
INTEGER_TYPES = (*SIGNED_TYPES, tf.uint8, tf.uint16, tf.uint32, tf.uint64)
COMPLEX_TYPES = (tf.complex64, tf.complex128)
ALL_TYPES = (*FLOAT_TYPES, *INTEGER_TYPES, *COMPLEX_TYPES, tf.bool)
# Scalar, nothing, less than a chunk and odd, several dimensions.
SHAPES = ((), (0,), (7,), (2, 3, 5))

COMBINATIONS: List[Tuple[tf.DType, sdp.ReduceOp]] = [
    *((dtype, op) for dtype in (*FLOAT_TYPES, *INTEGER_TYPES) for op in sdp.ReduceOp),
    *(
        (dtype, op)
        for dtype in COMPLEX_TYPES
        for op in (sdp.ReduceOp.SUM, sdp.ReduceOp.AVERAGE, sdp.ReduceOp.PRODUCT)
    ),
    (tf.bool, sdp.ReduceOp.MIN),
    (tf.bool, sdp.ReduceOp.MAX),
]

_NUMPY = {
    sdp.ReduceOp.SUM: lambda all_ranks: np.sum(all_ranks, axis=0),
    sdp.ReduceOp.AVERAGE: lambda all_ranks: _divided(np.sum(all_ranks, axis=0), len(all_ranks)),
    sdp.ReduceOp.MIN: lambda all_ranks: np.min(all_ranks, axis=0),
    sdp.ReduceOp.MAX: lambda all_ranks: np.max(all_ranks, axis=0),
    sdp.ReduceOp.PRODUCT: lambda all_ranks: np.prod(all_ranks, axis=0),
}


def _divided(values: np.ndarray, divisor: int) -> np.ndarray:
    # NumPy divides complex numbers in a way that rounds more than once.
    if np.iscomplexobj(values):
        return values.real / divisor + 1j * (values.imag / divisor)
    return values / divisor


def plain(shape: Tuple[int, ...], rank: int, salt: int = 0) -> np.ndarray:
    """Rank `rank`'s input as float64: integers from 1 to rank + 4."""
    count = int(np.prod(shape))
    return ((np.arange(count) * 5 + salt + rank) % 4 + 1.0 + rank % 2).reshape(shape)


def as_type(values: np.ndarray, dtype: tf.DType) -> np.ndarray:
    """The values in a type; the odd ones are true, and a fraction is cut towards zero in integers."""
    if dtype == tf.bool:
        return values % 2 == 1
    return values.astype(dtype.as_numpy_dtype)


def of_rank(shape: Tuple[int, ...], dtype: tf.DType, rank: int, salt: int = 0) -> np.ndarray:
    """Rank `rank`'s input."""
    return as_type(_exact(shape, dtype, rank, salt), dtype)


def _exact(shape: Tuple[int, ...], dtype: tf.DType, rank: int, salt: int) -> np.ndarray:
    values = plain(shape, rank, salt)
    # No product of two of these is real.
    return values * (1 + 2j) if dtype.is_complex else values


def reduced(
    shape: Tuple[int, ...], dtype: tf.DType, op: sdp.ReduceOp, size: int, salt: int = 0
) -> np.ndarray:
    """The result of every rank."""
    if dtype == tf.bool:
        return _NUMPY[op]([of_rank(shape, dtype, rank, salt) for rank in range(size)])
    exact = _NUMPY[op]([_exact(shape, dtype, rank, salt) for rank in range(size)])
    return as_type(exact, dtype)


def own_rows(rows: int, size: int) -> List[int]:
    """How many of a reduce-scatter's rows each rank gets."""
    return [rows // size + (rank < rows % size) for rank in range(size)]


def offset_of(rows: List[int], rank: int) -> int:
    """Where a rank's rows begin."""
    return sum(rows[:rank])


# How many times a value is rounded; not at all where one host reduces. conftest.py sets it where NCCL does,
# or several hosts.
roundings = 0

_MANTISSA_BITS = {
    tf.float16: 10,
    tf.bfloat16: 7,
    tf.float32: 23,
    tf.float64: 52,
    tf.complex64: 23,
    tf.complex128: 52,
}


def assert_equal(result: tf.Tensor, expected: np.ndarray, what: object = "") -> None:
    """To the bit, in value, type and shape; but for what NCCL rounds, or each host."""
    found = result.numpy() if hasattr(result, "numpy") else np.asarray(result)
    assert found.dtype == expected.dtype, what
    assert found.shape == expected.shape, what
    if found.tobytes() == expected.tobytes():
        return
    unit = 2.0 ** -_MANTISSA_BITS.get(tf.as_dtype(found.dtype), 99)
    wide_found, wide_expected = found.astype(np.complex128), expected.astype(np.complex128)
    most = roundings * unit * np.maximum(np.abs(wide_expected), 4.0)
    is_near = np.abs(wide_found - wide_expected) <= most
    assert roundings and is_near.all(), f"{what}: {found} is not {expected}"


def sum_of_ranks(size: int) -> float:
    """1 + 2 + … + size: the sum of every rank's rank + 1."""
    return size * (size + 1) / 2

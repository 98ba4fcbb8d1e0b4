"""prescale_factor and postscale_factor: numbers that a reduction multiplies by."""

from __future__ import annotations

import math
import numbers
from typing import Any, Dict, List, Sequence

import numpy as np
import tensorflow as tf

# The op's attributes are 32-bit floats, which TensorFlow has no wider ones of. These types can tell the
# difference.
_WIDE_TYPES = (tf.float64, tf.complex128)


class Scaling:
    """The factors of one reduction. The op applies them on the way, where its attributes can hold them."""

    def __init__(self, prescale: float, postscale: float):
        self._prescale = prescale
        self._postscale = postscale

    def before(self, tensors: Sequence[tf.Tensor]) -> List[tf.Tensor]:
        """The tensors for an op: multiplied by the first factor, unless the op does it."""
        return _outside(tensors, self._prescale)

    def attributes(self, tensors: Sequence[tf.Tensor]) -> Dict[str, float]:
        """The op's attributes."""
        return {
            "prescale": self._prescale if _fits(self._prescale, tensors) else 1.0,
            "postscale": self._postscale if _fits(self._postscale, tensors) else 1.0,
        }

    def after(self, tensors: Sequence[tf.Tensor]) -> List[tf.Tensor]:
        """The results from an op's: multiplied by the second factor, unless the op did it."""
        return _outside(tensors, self._postscale)

    def check(self, dtype: tf.DType, caller: str) -> None:
        """Raises a ValueError, unless tensors of this type can be multiplied so."""
        if (self._prescale, self._postscale) != (1.0, 1.0) and not (dtype.is_floating or dtype.is_complex):
            raise ValueError(
                f"{caller}() takes prescale_factor={self._prescale} and postscale_factor={self._postscale} "
                f"only for floating and complex types, but the tensor is {dtype.name}. Cast it, or scale it "
                "yourself."
            )


NONE = Scaling(1.0, 1.0)


def scaling(prescale_factor: Any, postscale_factor: Any, caller: str) -> Scaling:
    """The factors that a user's arguments mean.

    Raises:
        TypeError: one is not a Python or NumPy number.
        ValueError: one is not finite.
    """
    return Scaling(
        _factor(prescale_factor, "prescale_factor", caller),
        _factor(postscale_factor, "postscale_factor", caller),
    )


def _factor(value: Any, name: str, caller: str) -> float:
    if isinstance(value, bool) or not isinstance(value, (numbers.Real, np.number)):
        raise TypeError(f"{caller}() needs {name} as a number, but got {value!r}.")
    if not math.isfinite(value):
        raise ValueError(f"{caller}() needs a finite {name}, but got {value!r}.")
    return float(value)


def _fits(factor: float, tensors: Sequence[tf.Tensor]) -> bool:
    with np.errstate(over="ignore"):
        narrow = float(np.float32(factor))
    exact = narrow == factor or all(tensor.dtype not in _WIDE_TYPES for tensor in tensors)
    return math.isfinite(narrow) and exact


def _outside(tensors: Sequence[tf.Tensor], factor: float) -> List[tf.Tensor]:
    if _fits(factor, tensors):
        return list(tensors)
    return [tensor * tf.constant(factor, tensor.dtype) for tensor in tensors]

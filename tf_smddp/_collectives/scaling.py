"""prescale_factor and postscale_factor: numbers that a reduction multiplies by."""

from __future__ import annotations

import functools
import math
import numbers
from typing import Any, List

import numpy as np
import tensorflow as tf


class Scaling:
    """The factors of one reduction."""

    def __init__(self, prescale: float, postscale: float):
        self.prescale = prescale
        self.postscale = postscale

    def inputs(self) -> List[Any]:
        """The op's input: one vector, or nothing where the factors change nothing."""
        if self.prescale == self.postscale == 1.0:
            return []
        if tf.executing_eagerly():
            return [_eager_factors(self.prescale, self.postscale)]
        return [[self.prescale, self.postscale]]

    def check(self, dtype: tf.DType, caller: str) -> None:
        """Raises a ValueError, unless tensors of this type can be multiplied so."""
        if (self.prescale, self.postscale) != (1.0, 1.0) and not (dtype.is_floating or dtype.is_complex):
            raise ValueError(
                f"{caller}() takes prescale_factor={self.prescale} and postscale_factor={self.postscale} "
                f"only for floating and complex types, but the tensor is {dtype.name}. Cast it, or scale it "
                "yourself."
            )


NONE = Scaling(1.0, 1.0)


@functools.lru_cache(maxsize=64)
def _eager_factors(prescale: float, postscale: float) -> tf.Tensor:
    """The op's input in eager mode. To make one costs as much as to run an op, so the last ones are kept."""
    return tf.constant([prescale, postscale], tf.float64)


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

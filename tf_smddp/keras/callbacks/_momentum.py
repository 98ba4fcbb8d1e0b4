"""Momentum correction: what a change of the learning rate does to the velocities of an optimizer.

Keras's SGD and RMSprop keep a velocity in which each step's learning rate is a factor already:
v = m v - lr g, w = w + v. When the rate changes by a factor f, the past steps in v still have the old one.
Goyal et al. 2017 ("Accurate, Large Minibatch SGD", section 3) multiply m by f for one step. To multiply v by
it, once, is the same: (m f) v = m (f v). That works also where m is a constant of a traced function, as in
Keras 2's and 3's optimizers.
"""

from __future__ import annotations

from typing import Any, Callable, List, Optional, Tuple

import tensorflow as tf


class MomentumCorrection:
    """Scales an optimizer's velocities; remembers the function that does so."""

    def __init__(self) -> None:
        """Starts without an optimizer."""
        self._ids: Tuple[int, ...] = ()
        self._scale: Optional[Callable[[float], None]] = None

    def scale(self, optimizer: Any, trainable: List[Any], factor: float) -> None:
        """Multiplies the velocities by `factor`; nothing for an optimizer without momentum or variables."""
        velocities = velocities_of(optimizer, trainable)
        if not velocities:
            return
        ids = tuple(map(id, velocities))
        if self._scale is None or ids != self._ids:
            make_scaler = _scaler if tf.executing_eagerly() else _scaler_in_session
            self._ids, self._scale = ids, make_scaler(velocities)
        self._scale(factor)


def velocities_of(optimizer: Any, trainable: List[Any]) -> List[Any]:
    """Returns the variables of the optimizer that are velocities; none before it is built."""
    while hasattr(optimizer, "inner_optimizer"):  # LossScaleOptimizer
        optimizer = optimizer.inner_optimizer
    if hasattr(optimizer, "get_slot_names"):  # Keras 2's legacy optimizers
        if "momentum" not in optimizer.get_slot_names():
            return []
        return [optimizer.get_slot(variable, "momentum") for variable in trainable]
    if not hasattr(optimizer, "momentum"):
        return []  # Adam and its like: their averages of gradients do not contain the rate
    return list(getattr(optimizer, "momentums", None) or getattr(optimizer, "_momentums", None) or [])


def _scaler(velocities: List[Any]) -> Callable[[float], None]:
    @tf.function
    def scale(factor: tf.Tensor) -> None:
        for velocity in velocities:
            velocity.assign(velocity * tf.cast(factor, velocity.dtype))

    return lambda factor: scale(tf.constant(factor, tf.float64))


def _scaler_in_session(velocities: List[Any]) -> Callable[[float], None]:
    """Returns a function that scales them in the session of Keras 2 in a v1 graph."""
    factor = tf.compat.v1.placeholder(tf.float64, [])
    scaled = tf.group(
        *(velocity.assign(velocity * tf.cast(factor, velocity.dtype)) for velocity in velocities)
    )

    def scale(value: float) -> None:
        tf.compat.v1.keras.backend.get_session().run(scaled, {factor: value})

    return scale

"""The families of Keras optimizers that this environment has, and helpers for the tests of all of them."""

import dataclasses
import importlib.util
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from values import assert_equal

import tf_smddp as sdp


@dataclasses.dataclass
class Family:
    name: str
    keras: Any  # the package: Keras 2 or 3, or tf_keras
    optimizers: Any  # the module with SGD, Adam and so on
    loss_scale_optimizer: Any

    @property
    def is_keras3(self) -> bool:
        return self.name == "keras3"

    @property
    def is_legacy(self) -> bool:
        return self.name.endswith("legacy")

    @property
    def is_beside_keras3(self) -> bool:
        """Whether this is Keras 2 as the package tf_keras, which has the optimizers of TensorFlow 2.15."""
        return self.name.startswith("tf_keras")

    def variable(self, value) -> Any:
        value = np.asarray(value, np.float32)
        return keras.Variable(value) if self.is_keras3 else tf.Variable(value)


def _keras2(name: str, package: Any) -> list:
    loss_scale_optimizer = package.mixed_precision.LossScaleOptimizer
    return [
        Family(name, package, package.optimizers, loss_scale_optimizer),
        Family(f"{name}-legacy", package, package.optimizers.legacy, loss_scale_optimizer),
    ]


def _families() -> list:
    if keras.__version__.startswith("2."):
        return _keras2("keras2", tf.keras)
    found = [Family("keras3", keras, keras.optimizers, keras.optimizers.LossScaleOptimizer)]
    if importlib.util.find_spec("tf_keras"):
        import tf_keras

        found += _keras2("tf_keras", tf_keras)
    return found


ALL = _families()
OF_KERAS_2 = [family for family in ALL if not family.is_keras3]
OF_KERAS_3 = [family for family in ALL if family.is_keras3]


def each(families: list) -> Any:
    """Parametrizes a test by families. Those of tf_keras are `long`."""
    return _parametrized(families, lambda family: family.is_beside_keras3)


def each_and_tf_keras(families: list) -> Any:
    """As each(), with tf_keras in `make test`, too."""
    return _parametrized(families, lambda family: family.is_beside_keras3 and family.is_legacy)


def _parametrized(families: list, is_long: Any) -> Any:
    values = [pytest.param(f, id=f.name, marks=pytest.mark.long if is_long(f) else ()) for f in families]
    return pytest.mark.parametrize("family", values)


EAGER_AND_GRAPH = pytest.mark.parametrize("mode", [lambda f: f, tf.function], ids=["eager", "graph"])


def array(variable: Any) -> np.ndarray:
    return tf.convert_to_tensor(variable).numpy()


def applier(optimizer: Any, variables: list, mode: Any = lambda f: f) -> Any:
    """A function that applies a list of gradients."""

    @mode
    def apply(gradients):
        optimizer.apply_gradients(zip(gradients, variables))

    return apply


def assert_same_on_all_ranks(values: list) -> None:
    for value in values:
        assert_equal(sdp.broadcast(value, 0), array(value), "equal to the bit on all ranks")

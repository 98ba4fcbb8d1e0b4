"""The models that are trained, each with one synthetic batch."""

from __future__ import annotations

import importlib.util
import pathlib
import sys
from typing import Any, NamedTuple, Tuple

import numpy as np
import tensorflow as tf

_DIGITS = pathlib.Path(__file__).resolve().parent.parent.parent / "examples" / "digits.py"


class Task(NamedTuple):
    """A model and a batch for it; the labels are class numbers, the model's outputs logits."""

    model: tf.keras.Model
    images: tf.Tensor
    labels: tf.Tensor


def make_task(name: str, batch_size: int, seed: int) -> Task:
    """Makes mlp, cnn, resnet50 or digits. `seed` is for the batch; the weights are the same on all ranks."""
    tf.keras.utils.set_random_seed(1)
    model, shape, classes = _MODELS[name]()
    numbers = np.random.default_rng(seed)
    images = numbers.random((batch_size, *shape), np.float32)
    return Task(model, tf.constant(images), tf.constant(numbers.integers(0, classes, batch_size)))


Made = Tuple[Any, Tuple[int, ...], int]


def _mlp() -> Made:
    """A multilayer perceptron with 2.9 million weights."""
    layers = tf.keras.layers
    hidden = [layers.Dense(1024, activation="relu") for _ in range(3)]
    return tf.keras.Sequential([tf.keras.Input(shape=(784,)), *hidden, layers.Dense(10)]), (784,), 10


def _cnn() -> Made:
    """A CNN with 0.6 million weights, whose activations are larger than its weights."""
    layers, parts = tf.keras.layers, []
    for filters in (32, 64, 128):
        parts += [layers.Conv2D(filters, 3, padding="same", activation="relu") for _ in range(2)]
        parts.append(layers.MaxPooling2D())
    top = [layers.Flatten(), layers.Dense(128, activation="relu"), layers.Dense(10)]
    return tf.keras.Sequential([tf.keras.Input(shape=(32, 32, 3)), *parts, *top]), (32, 32, 3), 10


def _resnet50() -> Made:
    """ResNet50 with 25.6 million weights, on small images, so that a step on two cores is short."""
    shape = (64, 64, 3)
    backbone = tf.keras.applications.ResNet50(
        weights=None, include_top=False, input_shape=shape, pooling="avg"
    )
    return tf.keras.Sequential([backbone, tf.keras.layers.Dense(1000)]), shape, 1000


def _digits() -> Made:
    """The model of examples/digits.py."""
    spec = importlib.util.spec_from_file_location("digits", _DIGITS)
    assert spec and spec.loader
    example = importlib.util.module_from_spec(spec)
    sys.modules["digits"] = example
    spec.loader.exec_module(example)
    return example.make_model(), (8, 8, 1), 10


_MODELS = {"mlp": _mlp, "cnn": _cnn, "resnet50": _resnet50, "digits": _digits}

"""The models that are trained, each with one synthetic batch."""

from __future__ import annotations

from typing import Any, NamedTuple, Tuple

import numpy as np
import tensorflow as tf


class Task(NamedTuple):
    """A model and a batch for it; the labels are class numbers, the model's outputs logits."""

    model: tf.keras.Model
    images: tf.Tensor  # or words, by their numbers
    labels: tf.Tensor


def make_task(name: str, batch_size: int, seed: int) -> Task:
    """Makes one of MODELS. `seed` is for the batch; the weights are the same on all ranks."""
    tf.keras.utils.set_random_seed(1)
    model, shape, classes, *words = MODELS[name]()
    numbers = np.random.default_rng(seed)
    if words:
        images = numbers.integers(0, words[0], (batch_size, *shape), np.int32)
    else:
        images = numbers.random((batch_size, *shape), np.float32)
    return Task(model, tf.constant(images), tf.constant(numbers.integers(0, classes, batch_size)))


# The model, the shape of its input, the number of classes, and that of words if its input is words.
Made = Tuple[Any, ...]


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
    """A CNN with 0.1 million weights: that of examples/digits.py, which peers cannot import."""
    layers, parts = tf.keras.layers, []
    for filters in (32, 64):
        parts.append(layers.Conv2D(filters, 3, padding="same", activation="relu"))
    parts += [layers.MaxPooling2D(), layers.Dropout(0.15), layers.Flatten()]
    top = [layers.Dense(96, activation="relu"), layers.Dropout(0.3), layers.Dense(10)]
    return tf.keras.Sequential([tf.keras.Input(shape=(8, 8, 1)), *parts, *top]), (8, 8, 1), 10


def _encoder() -> Made:
    """Two layers of a transformer's encoder, as in BERT, with 2.1 million weights."""
    layers, words, length, width = tf.keras.layers, 2000, 64, 256
    given = tf.keras.Input(shape=(length,), dtype=tf.int32)
    x = layers.Embedding(words, width)(given)
    for _ in range(2):
        x = layers.LayerNormalization()(x + layers.MultiHeadAttention(4, width // 4)(x, x))
        inner = layers.Dense(4 * width, activation="gelu")(x)
        x = layers.LayerNormalization()(x + layers.Dense(width)(inner))
    return tf.keras.Model(given, layers.Dense(10)(x[:, 0])), (length,), 10, words


def _embedding() -> Made:
    """Rows of a large table, of which a batch uses few: 12.8 million weights with sparse gradients."""
    layers, words, length = tf.keras.layers, 200_000, 16
    parts = [tf.keras.Input(shape=(length,), dtype=tf.int32), layers.Embedding(words, 64)]
    parts += [layers.GlobalAveragePooling1D(), layers.Dense(64, activation="relu"), layers.Dense(10)]
    return tf.keras.Sequential(parts), (length,), 10, words


MODELS = {
    "mlp": _mlp,
    "cnn": _cnn,
    "resnet50": _resnet50,
    "digits": _digits,
    "encoder": _encoder,
    "embedding": _embedding,
}

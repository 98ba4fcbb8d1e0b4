"""The models that are trained, each with one synthetic batch. torch_models.py has most of them in torch."""

from __future__ import annotations

from typing import NamedTuple

import tensorflow as tf

from training.inputs import MODELS, check_size, make_batch


class Task(NamedTuple):
    """A model and a batch for it; the labels are class numbers, the model's outputs logits."""

    model: tf.keras.Model
    images: tf.Tensor  # or words, by their numbers
    labels: tf.Tensor


def make_task(name: str, batch_size: int, seed: int) -> Task:
    """Makes one of MAKERS. `seed` is for the batch; the weights are the same on all ranks."""
    tf.keras.utils.set_random_seed(1)
    model = MAKERS[name]()
    check_size(name, [variable.shape for variable in model.trainable_variables])
    images, labels = make_batch(name, batch_size, seed)
    return Task(model, tf.constant(images), tf.constant(labels))


def _input(name: str) -> tf.Tensor:
    return tf.keras.Input(shape=MODELS[name].shape, dtype=tf.int32 if MODELS[name].words else None)


def _mlp() -> tf.keras.Model:
    """A multilayer perceptron with 2.9 million weights."""
    layers = tf.keras.layers
    hidden = [layers.Dense(1024, activation="relu") for _ in range(3)]
    return tf.keras.Sequential([_input("mlp"), *hidden, layers.Dense(10)])


def _cnn() -> tf.keras.Model:
    """A CNN with 0.6 million weights, whose activations are larger than its weights."""
    layers, parts = tf.keras.layers, []
    for filters in (32, 64, 128):
        parts += [layers.Conv2D(filters, 3, padding="same", activation="relu") for _ in range(2)]
        parts.append(layers.MaxPooling2D())
    top = [layers.Flatten(), layers.Dense(128, activation="relu"), layers.Dense(10)]
    return tf.keras.Sequential([_input("cnn"), *parts, *top])


def _resnet50() -> tf.keras.Model:
    """ResNet50 with 25.6 million weights, on small images, so that a step on two cores is short."""
    backbone = tf.keras.applications.ResNet50(
        weights=None, include_top=False, input_shape=MODELS["resnet50"].shape, pooling="avg"
    )
    return tf.keras.Sequential([backbone, tf.keras.layers.Dense(1000)])


def _digits() -> tf.keras.Model:
    """A CNN with 0.1 million weights: that of examples/digits.py, which peers cannot import."""
    layers, parts = tf.keras.layers, []
    for filters in (32, 64):
        parts.append(layers.Conv2D(filters, 3, padding="same", activation="relu"))
    parts += [layers.MaxPooling2D(), layers.Dropout(0.15), layers.Flatten()]
    top = [layers.Dense(96, activation="relu"), layers.Dropout(0.3), layers.Dense(10)]
    return tf.keras.Sequential([_input("digits"), *parts, *top])


def _encoder() -> tf.keras.Model:
    """Two layers of a transformer's encoder, as in BERT, with 2.1 million weights."""
    layers, width, given = tf.keras.layers, 256, _input("encoder")
    x = layers.Embedding(MODELS["encoder"].words, width)(given)
    for _ in range(2):
        x = layers.LayerNormalization()(x + layers.MultiHeadAttention(4, width // 4)(x, x))
        inner = layers.Dense(4 * width, activation="gelu")(x)
        x = layers.LayerNormalization()(x + layers.Dense(width)(inner))
    return tf.keras.Model(given, layers.Dense(10)(x[:, 0]))


def _embedding() -> tf.keras.Model:
    """Rows of a large table, of which a batch uses few: 12.8 million weights with sparse gradients."""
    layers = tf.keras.layers
    parts = [_input("embedding"), layers.Embedding(MODELS["embedding"].words, 64)]
    parts += [layers.GlobalAveragePooling1D(), layers.Dense(64, activation="relu"), layers.Dense(10)]
    return tf.keras.Sequential(parts)


MAKERS = {
    "mlp": _mlp,
    "cnn": _cnn,
    "resnet50": _resnet50,
    "digits": _digits,
    "encoder": _encoder,
    "embedding": _embedding,
}

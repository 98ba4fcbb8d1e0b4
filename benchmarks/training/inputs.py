"""The shared part of the models of TensorFlow and of torch: their inputs, their sizes and their batches.

Standard library only, but for make_batch().
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Iterable, NamedTuple, Sequence, Tuple

if TYPE_CHECKING:
    import numpy as np


class About(NamedTuple):
    """A model, seen from outside; its outputs are logits."""

    shape: Tuple[int, ...]  # of one image, the channels last; or of one text
    classes: int
    tensors: int  # that are trained
    weights: int  # in these tensors
    words: int = 0  # the number of different words, if the input is a text


MODELS = {
    "mlp": About((784,), 10, 8, 2_913_290),
    "cnn": About((32, 32, 3), 10, 16, 550_570),
    "digits": About((8, 8, 1), 10, 8, 118_186),
    "encoder": About((64,), 10, 35, 2_094_090, words=2000),
    "embedding": About((16,), 10, 5, 12_804_810, words=200_000),
    "resnet50": About((64, 64, 3), 1000, 214, 25_583_592),
}


def make_batch(name: str, batch_size: int, seed: int) -> Tuple[np.ndarray, np.ndarray]:
    """Returns images [batch, …] in 0..1, or texts of word numbers, and labels [batch], which are classes."""
    import numpy as np

    about, numbers = MODELS[name], np.random.default_rng(seed)
    shape = (batch_size, *about.shape)
    if about.words:
        images = numbers.integers(0, about.words, shape, np.int32)
    else:
        images = numbers.random(shape, np.float32)
    return images, numbers.integers(0, about.classes, batch_size)


def check_size(name: str, shapes: Iterable[Sequence[int]]) -> None:
    """Raises AssertionError unless the trained tensors of a model are as many and as large as in MODELS.

    Both frameworks check their models so, before they train: then one trains as many weights as the other.
    """
    counts = [math.prod(shape) for shape in shapes]
    found, wanted = (len(counts), sum(counts)), (MODELS[name].tensors, MODELS[name].weights)
    if found != wanted:
        raise AssertionError(f"{name}: (tensors, weights) are {found}, and should be {wanted}")

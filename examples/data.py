"""The shared part of the examples: the images, the choice of a GPU, and the lines that rank 0 prints.

The data set is scikit-learn's handwritten digits: 1,797 images of 8 x 8 pixels, which need no network; every
fifth is kept for the test.
"""

from __future__ import annotations

from typing import Any, Sequence, Tuple

import numpy as np
import tensorflow as tf
from sklearn.datasets import load_digits

import tf_smddp as sdp


def use_local_gpu() -> None:
    """If there are GPUs, each local rank uses one of them. Call it after init(), before the first tensor."""
    gpus = tf.config.list_physical_devices("GPU")
    for gpu in gpus:
        tf.config.experimental.set_memory_growth(gpu, True)
    if gpus:
        tf.config.set_visible_devices(gpus[sdp.local_rank() % len(gpus)], "GPU")


def load_images() -> Tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Returns training images and labels, then test images and labels; images [n, 64] in 0..1."""
    digits = load_digits()
    images = (digits.data / 16.0).astype(np.float32)
    labels = digits.target.astype(np.int64)
    test = np.arange(len(labels)) % 5 == 4
    return images[~test], labels[~test], images[test], labels[test]


def batches_of_this_rank(arrays: Any, batch_size: int) -> tf.data.Dataset:
    """Returns this rank's part of the data, shuffled anew in each epoch, without the incomplete last batch.

    `sdp.shard` gives all ranks the same number of records, so all make the same number of steps.
    """
    records = tf.data.Dataset.from_tensor_slices(arrays)
    return sdp.shard(records).shuffle(2000).batch(batch_size, drop_remainder=True).prefetch(2)


def progress(text: str) -> None:
    """Prints a line on rank 0."""
    if sdp.rank() == 0:
        print(text, flush=True)


def weights_are_equal(weights: Sequence[np.ndarray]) -> bool:
    """Returns whether all ranks have the same arrays, to the bit. Collective: every rank must call this."""
    roots = sdp.broadcast_object(list(weights))
    equal = all(np.array_equal(mine, root) for mine, root in zip(weights, roots))
    return all(sdp.allgather_object(equal))


def summarize(weights: Sequence[np.ndarray], images: int, seconds: float, result: str) -> int:
    """Prints a summary on rank 0; returns the exit code: 1 if the weights differ. Collective.

    Args:
        weights: this rank's, after the training.
        images: how many this rank has trained on.
        seconds: the time that this took.
        result: what was reached, as in "test accuracy  97.00%".
    """
    equal = weights_are_equal(weights)
    progress(f"ranks          {sdp.size()}")
    progress(f"training time  {seconds:.1f} s, {sdp.size() * images / seconds:.0f} images/s")
    progress(result)
    progress(f"weights        {'equal to the bit on all ranks' if equal else 'DIFFER between ranks'}")
    return 0 if equal else 1

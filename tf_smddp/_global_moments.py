"""global_moments: mean and variance over the batches of all ranks.

Each rank computes its own mean, and the sum of the squared distances from that, in two passes. Then the
ranks add up, in float64, per channel:

    count, count * mean, squared distances + count * mean ** 2

and take the mean of all from the first two, the variance from all three. That is one collective, of a size
that does not depend on the number of ranks; two passes over all ranks' data would take two. And nothing is
lost where the mean is large against the deviation, as it would be in float32 sums of squares: the
difference in the end is of numbers with 53 bits. Ranks may have different numbers of rows, or none.

The gradient is TensorFlow's own of the same formula. It has one collective too, that of `allreduce`, which
adds up what all ranks' losses have for the sums. Second derivatives exist likewise.
"""

from __future__ import annotations

from typing import NamedTuple, Optional, Sequence

import tensorflow as tf

from smddp import ReduceOp
from tf_smddp import _tickets
from tf_smddp._allreduce import allreduce_op
from tf_smddp._autograph import not_converted
from tf_smddp._call_site import check_call_site


class Moments(NamedTuple):
    """Mean and variance of some rows, by channel."""

    mean: tf.Tensor
    variance: tf.Tensor  # biased: the mean of the squares
    count: tf.Tensor  # of elements; a scalar where it is the same for all channels


def global_moments(
    x: tf.Tensor, axes: Sequence[int], keepdims: bool, mask: Optional[tf.Tensor], name: str
) -> Moments:
    """Returns the mean and the variance over `axes` of the rows of all ranks.

    Collective: every rank must call this; it draws a ticket, as `allreduce`.

    Args:
        x: float32 or float64. The ranks may have different sizes along `axes`, and must agree in the others.
        axes: what to reduce over.
        keepdims: whether these stay, with size 1.
        mask: what counts: bool or numbers of a shape that broadcasts to that of `x`; None is all.
        name: of the tensor, for error messages.

    Returns:
        Tensors of the type of `x`; zeros where nothing counts on any rank.
    """
    if mask is None:
        # The count is the same for all channels.
        count = tf.cast(tf.reduce_prod(tf.gather(tf.shape(x, out_type=tf.int64), axes)), x.dtype)
        distances_of = x
    else:
        counts = tf.broadcast_to(tf.cast(mask, tf.bool), tf.shape(x))
        count = tf.reduce_sum(tf.cast(counts, x.dtype), axes, keepdims=True)
        distances_of = tf.where(counts, x, tf.zeros_like(x))
    mean = tf.math.divide_no_nan(tf.reduce_sum(distances_of, axes, keepdims=True), count)
    distances = x - mean if mask is None else tf.where(counts, x - mean, tf.zeros_like(x))
    squares = tf.reduce_sum(tf.square(distances), axes, keepdims=True)

    count, mean, squares = (tf.cast(each, tf.float64) for each in (count, mean, squares))
    parts = [count, count * mean, squares + count * tf.square(mean)]
    sums = _sums(tf.concat([tf.reshape(part, [-1]) for part in parts], 0), _tensor_name(name))
    counts_sum, sum_, squares_sum = (
        tf.reshape(total, tf.shape(part))
        for total, part in zip(tf.split(sums, [tf.size(part) for part in parts]), parts)
    )
    mean = tf.math.divide_no_nan(sum_, counts_sum)
    variance = tf.maximum(tf.math.divide_no_nan(squares_sum, counts_sum) - tf.square(mean), 0.0)
    return Moments(
        _finish(mean, x, axes, keepdims),
        _finish(variance, x, axes, keepdims),
        tf.cast(counts_sum, x.dtype) if mask is None else _finish(counts_sum, x, axes, keepdims),
    )


@not_converted
def _sums(tensor: tf.Tensor, name: Optional[str]) -> tf.Tensor:
    """Collective: the sums over all ranks. `allreduce` would count them as what a script reduces."""
    check_call_site("SyncBatchNormalization")
    ticket = _tickets.draw_ticket()
    label, node_name = _tickets.names(name, "SmddpAllreduce")
    # A layer's name, which Keras may have numbered, is for messages: ranks do not compare it.
    return allreduce_op(tensor, ticket, ReduceOp.SUM, 0, 1, name or label, node_name)


def _finish(moment: tf.Tensor, x: tf.Tensor, axes: Sequence[int], keepdims: bool) -> tf.Tensor:
    """In the type of `x`, with a static shape."""
    reduced = {axis % len(x.shape) for axis in axes}
    moment = tf.ensure_shape(moment, [1 if i in reduced else size for i, size in enumerate(x.shape)])
    return tf.cast(moment if keepdims else tf.squeeze(moment, axes), x.dtype)


def _tensor_name(name: str) -> Optional[str]:
    # In a v1 graph tensors meet by it, so a layer that is called twice must not have it twice.
    return None if _tickets.pairs_by_name() else name

"""SyncBatchNormalization: batch normalization over the batches of all ranks.

A subclass of what `tf.keras.layers.BatchNormalization` is in this process: that of Keras 2, of Keras 3, or of
tf_keras where TF_USE_LEGACY_KERAS=1. It has the stock layer's arguments, weights and configuration, and
replaces one thing: where the mean and the variance of a training batch come from. Which method that is
differs between Keras 2 and 3, so there are two classes.

A saved model must load where tf_smddp is not installed, so the class has the stock layer's name: Keras writes
a layer's class into model files by its `__name__` and `__module__`, and names its weights after it.

Imported by tf_smddp/__init__.py when somebody asks for the class, since it imports Keras.

For the mean and the variance over the batches of all ranks, each rank computes its own mean, and the sum of
the squared distances from that, in two passes. Then the ranks add up, in float64, per channel:

    count, count * mean, squared distances + count * mean ** 2

and take the mean of all from the first two, the variance from all three. That is one collective, of a size
that does not depend on the number of ranks; two passes over all ranks' data would take two. And nothing is
lost where the mean is large against the deviation, as it would be in float32 sums of squares: the
difference in the end is of numbers with 53 bits. Ranks may have different numbers of rows, or none.

The gradient is TensorFlow's own of the same formula. It has one collective too, that of `allreduce`, which
adds up what all ranks' losses have for the sums. Second derivatives exist likewise.
"""

from __future__ import annotations

import contextvars
import warnings
from typing import Any, NamedTuple, Optional, Sequence, Tuple

import tensorflow as tf

from smddp import ReduceOp, runtime
from tf_smddp._base import tensorflow_private
from tf_smddp._collectives.allreduce import allreduce_op
from tf_smddp._graphs import tickets
from tf_smddp._graphs.call_site import check_call_site


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


def _sums(tensor: tf.Tensor, name: Optional[str]) -> tf.Tensor:
    """Collective: the sums over all ranks. `allreduce` would count them as what a script reduces."""
    check_call_site("SyncBatchNormalization")
    ticket = tickets.draw_ticket()
    label, node_name = tickets.names(name, "SmddpAllreduce")
    # A layer's name, which Keras may have numbered, is for messages: ranks do not compare it.
    return allreduce_op(tensor, ticket, ReduceOp.SUM, 0, 1, name or label, node_name)


def _finish(moment: tf.Tensor, x: tf.Tensor, axes: Sequence[int], keepdims: bool) -> tf.Tensor:
    """In the type of `x`, with a static shape."""
    reduced = {axis % len(x.shape) for axis in axes}
    moment = tf.ensure_shape(moment, [1 if i in reduced else size for i, size in enumerate(x.shape)])
    return tf.cast(moment if keepdims else tf.squeeze(moment, axes), x.dtype)


def _tensor_name(name: str) -> Optional[str]:
    # In a v1 graph tensors meet by it, so a layer that is called twice must not have it twice.
    return None if tickets.pairs_by_name() else name


class _Call:
    """A call of a Keras 2 layer that is under way."""

    def __init__(self, training: Any):
        self.training = training  # True, False, or a tensor where Keras knows only at run time
        self.count: Any = None  # of elements that the statistics are about, on all ranks


_call: contextvars.ContextVar[_Call] = contextvars.ContextVar("tf_smddp_call")


def _synchronizes() -> bool:
    """Whether statistics come from all ranks; else everything is the stock layer's.

    A model that is exported takes the function that trains along, too.
    """
    return runtime.is_initialized() and runtime.size() > 1 and not tensorflow_private.is_exporting()


class _Keras2(tf.keras.layers.BatchNormalization):
    """Keras 2 and tf_keras: the statistics come from `_calculate_mean_and_var`, unless the op is fused."""

    def __init__(self, *args: Any, virtual_batch_size: Optional[int] = None, **kwargs: Any):
        if virtual_batch_size is not None:
            raise ValueError(
                "SyncBatchNormalization takes no virtual_batch_size, which makes statistics of less than a "
                f"rank's batch, but got {virtual_batch_size}. Use tf.keras.layers.BatchNormalization with it."
            )
        super().__init__(*args, **kwargs)

    @property
    def fused(self) -> Optional[bool]:
        """Whether to use the fused op, which has no place for statistics of others."""
        return self._fused and not _synchronizes()

    @fused.setter
    def fused(self, value: Optional[bool]) -> None:
        self._fused = value

    def call(self, inputs: Any, training: Any = None, mask: Any = None) -> Any:
        """The stock layer's method."""
        training = self._get_training_value(training)
        if mask is not None and self._fused and _synchronizes():
            warnings.warn(
                f"SyncBatchNormalization {self.name!r} ignores the mask, as BatchNormalization does for "
                "inputs of four and five dimensions. Pass fused=False to use the mask.",
                stacklevel=2,
            )
            mask = None
        token = _call.set(_Call(training))
        try:
            return super().call(inputs, training=training, mask=mask)
        finally:
            _call.reset(token)

    def _calculate_mean_and_var(
        self, inputs: tf.Tensor, reduction_axes: Sequence[int], keep_dims: bool, mask: Any = None
    ) -> Tuple[tf.Tensor, tf.Tensor]:
        # Keras asks for them also where it turns out at run time that nobody trains.
        def of_all_ranks() -> Moments:
            weights = None if mask is None else tf.expand_dims(mask, -1)
            return global_moments(inputs, reduction_axes, keep_dims, weights, f"{self.name}/moments")

        def of_this_rank() -> Moments:
            mean, variance = super(_Keras2, self)._calculate_mean_and_var(
                inputs, reduction_axes, keep_dims, mask
            )
            return Moments(mean, variance, tf.ones([], inputs.dtype) if mask is None else tf.ones_like(mean))

        call = _call.get()
        if not _synchronizes():
            moments = of_this_rank()
        elif tf.is_tensor(call.training):
            moments = tf.cond(tf.cast(call.training, tf.bool), of_all_ranks, of_this_rank)
        else:
            moments = of_all_ranks() if call.training else of_this_rank()
        call.count = moments.count
        return moments.mean, moments.variance

    def _assign_moving_average(self, variable: Any, value: Any, momentum: Any, inputs_size: Any) -> Any:
        if variable is self.moving_variance and self._fused and _synchronizes():
            # The fused op, which the stock layer would use, gives the moving variance Bessel's correction.
            # Keras's own code has no such argument.
            count = tf.cast(_call.get().count, value.dtype)
            value *= count / tf.maximum(count - 1, 1)
        return super()._assign_moving_average(variable, value, momentum, inputs_size)


class _Keras3(tf.keras.layers.BatchNormalization):
    """Keras 3: the statistics come from `_moments`, which is called in training only."""

    def _moments(self, inputs: tf.Tensor, mask: Any) -> Tuple[tf.Tensor, tf.Tensor]:
        if not _synchronizes():
            return super()._moments(inputs, mask)
        inputs = tf.convert_to_tensor(inputs)
        weights = None if mask is None else tf.expand_dims(mask, -1)
        moments = global_moments(inputs, self._reduction_axes, False, weights, f"{self.name}/moments")
        return moments.mean, moments.variance


_Flavour: Any = _Keras2 if hasattr(tf.keras.layers.BatchNormalization, "_calculate_mean_and_var") else _Keras3


class SyncBatchNormalization(_Flavour):
    """`tf.keras.layers.BatchNormalization` with the batch statistics, in training, of all ranks' batches.

    N ranks with batch B compute what one rank with batch N·B computes: outputs, gradients and moving
    statistics. The ranks may have different numbers of rows. Statistics are computed in float32 at least.

    Collective in training: every rank must call the layer, in the same order as its other collectives,
    forward and backward. Inference communicates nothing; before `init`, and in a job of one rank, this is the
    stock layer.

    Models with it are saved, in every format, as models with the stock layer, and load without tf_smddp. To
    load one and go on training it with all ranks' statistics, pass
    `custom_objects={"BatchNormalization": tf_smddp.SyncBatchNormalization}`. Keras shows it under the stock
    layer's name, too.

    It takes the arguments of `tf.keras.layers.BatchNormalization`, but `synchronized`, which is about
    `tf.distribute`, has no effect.

    Raises:
        ValueError: `virtual_batch_size` is given.
        RuntimeError, tf.errors.OpError: as `allreduce`, when it is called in training.
    """


SyncBatchNormalization.__name__ = tf.keras.layers.BatchNormalization.__name__
SyncBatchNormalization.__module__ = "keras.layers"

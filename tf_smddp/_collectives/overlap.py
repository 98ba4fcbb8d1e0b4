"""overlap: marks where a compiler must not join the backward passes of two layers."""

from __future__ import annotations

from typing import Any, Callable, Tuple

import tensorflow as tf

from tf_smddp._base import tensorflow_private
from tf_smddp._base.arguments import to_tensor
from tf_smddp._graphs import op_parts


def overlap(tensor: Any) -> tf.Tensor:
    """Returns the tensor; so does its gradient.

    Put it between layers of a model that is compiled with XLA, on what goes from one to the next:

        def call(self, x):
            return sdp.overlap(self.second(sdp.overlap(self.first(x))))

    It leaves a mark in the backward pass alone. The forward pass has an op of TensorFlow's own, and so has
    all of an exported model: it loads where tf_smddp is not installed. Not a collective; works before `init`.

    Args:
        tensor: a tensor or what becomes one, of any type and shape.

    Returns:
        The same.

    Raises:
        TypeError: it is no tensor, and cannot become one.
    """
    return _marked(to_tensor(tensor, "overlap"))


@tf.custom_gradient
def _marked(tensor: tf.Tensor) -> Tuple[tf.Tensor, Callable[[tf.Tensor], tf.Tensor]]:
    def gradient(upstream: tf.Tensor) -> tf.Tensor:
        # A model that is exported takes its gradients along.
        return tf.identity(upstream) if tensorflow_private.is_exporting() else overlap_op(upstream)

    return tf.identity(tensor), gradient


@op_parts.placed
def overlap_op(tensor: tf.Tensor) -> tf.Tensor:
    """Emits one SmddpOverlap."""
    return op_parts.ops.smddp_overlap(tensor=tensor, name="SmddpOverlap")


@tf.RegisterGradient("SmddpOverlap")
def _overlap_gradient(_: tf.Operation, grad: Any) -> tf.Tensor:
    return overlap_op(tf.convert_to_tensor(grad))

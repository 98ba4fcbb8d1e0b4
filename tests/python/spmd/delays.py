"""Tensors that come late."""

import time

import tensorflow as tf


def delayed(value, milliseconds, stateful=True):
    """The value, after a while; TensorFlow gets to the ops behind it in the order of the delays.

    Tickets wait for a stateful op before them.
    """

    def wait(x):
        time.sleep(milliseconds / 1000)
        return x

    return tf.ensure_shape(tf.numpy_function(wait, [value], value.dtype, stateful=stateful), value.shape)

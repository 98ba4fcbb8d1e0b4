"""The ways in which TensorFlow runs a function of tensors."""

import pytest
import tensorflow as tf


def eager(function):
    return function


def in_a_v1_session(function):
    """In a graph of its own; values go in and come out."""

    def run(*arguments):
        values = tf.nest.map_structure(lambda tensor: tf.convert_to_tensor(tensor).numpy(), arguments)
        with tf.Graph().as_default(), tf.compat.v1.Session() as session:
            return session.run(function(*tf.nest.map_structure(tf.constant, values)))

    return run


MODES = pytest.mark.parametrize("mode", [eager, tf.function], ids=["eager", "graph"])
ALL_MODES = pytest.mark.parametrize(
    "mode", [eager, tf.function, in_a_v1_session], ids=["eager", "graph", "v1"]
)

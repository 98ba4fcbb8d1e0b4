"""The ways in which TensorFlow differentiates a function."""

import pytest
import tensorflow as tf


def eager(loss, x):
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = loss(x)
    return tape.gradient(y, x)


def inside_a_function(loss, x):
    return tf.function(lambda x: eager(loss, x))(x)


def outside_of_a_function(loss, x):
    """Differentiated where TensorFlow builds a backward graph, in which it keeps no program order."""
    return eager(tf.function(loss), x)


def in_a_v1_session(loss, x):
    value = x.numpy()
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        x = tf.constant(value)
        found = session.run(tf.gradients(loss(x), x)[0])
    return tf.constant(found)


MODES = pytest.mark.parametrize(
    "gradient_of",
    [eager, inside_a_function, outside_of_a_function, in_a_v1_session],
    ids=lambda mode: mode.__name__,
)

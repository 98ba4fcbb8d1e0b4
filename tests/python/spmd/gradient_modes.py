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


def compiled(loss, x):
    return tf.function(lambda x: eager(loss, x), jit_compile=True)(x)


def outside_of_a_compiled_function(loss, x):
    return eager(tf.function(loss, jit_compile=True), x)


def in_a_v1_session(loss, x):
    value = x.numpy()
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        x = tf.constant(value)
        found = session.run(tf.gradients(loss(x), x)[0])
    return tf.constant(found)


def _modes(*which):
    return pytest.mark.parametrize("gradient_of", which, ids=lambda mode: mode.__name__)


# The modes for shapes that XLA does not know at compile time.
DYNAMIC_MODES = _modes(eager, inside_a_function, outside_of_a_function, in_a_v1_session)
MODES = _modes(
    eager, inside_a_function, outside_of_a_function, compiled, outside_of_a_compiled_function, in_a_v1_session
)
COMPILED_MODES = _modes(compiled, outside_of_a_compiled_function)

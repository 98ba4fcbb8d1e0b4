"""overlap: the identity, with an identity gradient, to any order."""

import numpy as np
import pytest
import tensorflow as tf
from modes import ALL_MODES, MODES

import tf_smddp as sdp


@ALL_MODES
@pytest.mark.parametrize(
    "dtype", [tf.float32, tf.bfloat16, tf.float64, tf.complex64, tf.int32, tf.bool], ids=str
)
def test_identity(mode, dtype):
    x = tf.cast(tf.constant([[0, 1, 2], [3, 4, 5]]), dtype)
    found = mode(lambda x: [sdp.overlap(sdp.overlap(x))])(x)[0]
    assert np.array_equal(np.asarray(found), x.numpy())
    assert np.asarray(found).dtype == x.numpy().dtype


def derivatives(x):
    """First and second of the cube, through two marks."""
    with tf.GradientTape() as outer:
        outer.watch(x)
        with tf.GradientTape() as inner:
            inner.watch(x)
            y = tf.reduce_sum(sdp.overlap(sdp.overlap(x) ** 3))
        first = inner.gradient(y, x)
    return [first, outer.gradient(first, x)]


@ALL_MODES
def test_derivatives(mode):
    first, second = mode(derivatives)(tf.constant([1.0, 2.0]))
    assert np.asarray(first).tolist() == [3.0, 12.0]
    assert np.asarray(second).tolist() == [6.0, 12.0]


def test_v1_gradients():
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        x = tf.constant([1.0, 2.0])
        y = sdp.overlap(sdp.overlap(x) ** 3)
        first = tf.compat.v1.gradients(y, x)[0]
        second = tf.compat.v1.gradients(first, x)[0]
        assert [each.tolist() for each in session.run([y, first, second])] == [[1, 8], [3, 12], [6, 12]]


def test_only_the_backward_pass_has_the_mark():
    @tf.function
    def backward(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = sdp.overlap(x)
        assert not [op for op in x.graph.get_operations() if op.type == "SmddpOverlap"]
        return tape.gradient(y, x)

    graph = backward.get_concrete_function(tf.TensorSpec([2])).graph
    assert [op.type for op in graph.get_operations()].count("SmddpOverlap") == 1


@MODES
def test_with_a_reduction(rank, size, mode):
    """Between layers whose gradients are reduced."""

    @mode
    def step(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = sdp.overlap(sdp.overlap(x) * x)
        return sdp.DistributedGradientTape(tape, op=sdp.ReduceOp.SUM).gradient(y, [x])

    assert float(step(tf.constant(rank + 1.0))[0]) == sum(2.0 * (each + 1) for each in range(size))


def test_arguments():
    assert float(sdp.overlap(3.0)) == 3.0
    assert sdp.overlap([1, 2]).numpy().tolist() == [1, 2]
    variable = tf.Variable([1.0, 2.0])
    with tf.GradientTape() as tape:
        y = sdp.overlap(variable) * 2.0
    assert tf.convert_to_tensor(tape.gradient(y, variable)).numpy().tolist() == [2.0, 2.0]

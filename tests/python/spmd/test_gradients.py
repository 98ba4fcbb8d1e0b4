"""The ops can be differentiated: the loss of the job is the sum of all ranks' losses."""

import numpy as np
import pytest
import tensorflow as tf
from gradient_modes import MODES, eager, inside_a_function, outside_of_a_function
from values import sum_of_ranks

import tf_smddp as sdp

pytestmark = [pytest.mark.one_rank, pytest.mark.gpu]

AVERAGE, SUM = sdp.ReduceOp.AVERAGE, sdp.ReduceOp.SUM


@MODES
@pytest.mark.parametrize("op", [SUM, AVERAGE])
def test_allreduce(rank, size, gradient_of, op):
    """Rank r's loss is (r + 1) * y; so each x counts with the ranks' weights, reduced like x."""
    gradient = gradient_of(
        lambda x: (rank + 1.0) * tf.reduce_sum(sdp.allreduce(x, 0, 1, op=op)), tf.constant([1.0, 2.0])
    )
    assert gradient.numpy().tolist() == [sum_of_ranks(size) / (size if op is AVERAGE else 1)] * 2


@MODES
def test_broadcast(rank, size, gradient_of):
    for root in range(size):
        gradient = gradient_of(
            lambda x, root=root: (rank + 1.0) * tf.reduce_sum(sdp.broadcast(x, root)), tf.constant([1.0, 2.0])
        )
        assert gradient.numpy().tolist() == [sum_of_ranks(size) if rank == root else 0.0] * 2


@pytest.mark.parametrize("dtype", [tf.float16, tf.bfloat16, tf.float64, tf.complex64], ids=lambda d: d.name)
def test_broadcast_of_values_that_would_overflow_in_a_sum(rank, size, dtype):
    """Who is not the root gets zeros, also where the sum is none of a number."""
    gradient = inside_a_function(
        lambda x: tf.math.real(sdp.broadcast(x, 0) * tf.cast(np.inf, dtype)), tf.cast(1.0, dtype)
    )
    assert np.isinf(gradient.numpy().real) if rank == 0 else gradient.numpy() == 0.0


@MODES
def test_several_gradients_meet_their_partners(rank, size, gradient_of):
    """Five ops of one shape, each with another weight: mixed up, the sums would be wrong."""

    def loss(x):
        parts = [sdp.allreduce(x[i], 0, 1, op=SUM) * 10.0**i * (rank + 1) for i in range(5)]
        return tf.add_n(parts)

    gradient = gradient_of(loss, tf.constant([1.0, 2.0, 3.0, 4.0, 5.0]))
    assert gradient.numpy().tolist() == [10.0**i * sum_of_ranks(size) for i in range(5)]


@pytest.mark.parametrize(
    "gradient_of", [eager, inside_a_function, outside_of_a_function], ids=lambda m: m.__name__
)
def test_loop(rank, size, gradient_of):
    """The gradient goes four times through the loop, and doubles each time."""

    def loss(x):
        def body(i, y):
            return i + 1, 2.0 * sdp.allreduce(y, 0, 1, op=AVERAGE)

        return (rank + 1.0) * tf.while_loop(lambda i, _: i < 4, body, (0, x), parallel_iterations=10)[1]

    assert float(gradient_of(loss, tf.constant(3.0))) == 16.0 * sum_of_ranks(size) / size


@pytest.mark.parametrize(
    "gradient_of", [eager, inside_a_function, outside_of_a_function], ids=lambda m: m.__name__
)
def test_cond_and_nested_function(rank, size, gradient_of):
    nested = tf.function(lambda y: sdp.allreduce(y, 0, 1, op=SUM))

    def loss(x):
        y = tf.cond(x > 0.0, lambda: nested(x) * 2.0, lambda: x)
        return (rank + 1.0) * nested(y)

    for _ in range(5):
        assert float(gradient_of(loss, tf.constant(3.0))) == 2.0 * size * sum_of_ranks(size)


def test_gradient_of_a_grouped_allreduce(rank, size):
    """The eager tape reduces with one op for the group; differentiate through it (a second derivative)."""
    x = tf.constant([1.0, 2.0])
    with tf.GradientTape() as outer:
        outer.watch(x)
        with sdp.DistributedGradientTape(tf.GradientTape(), op=SUM) as inner:
            inner.watch(x)
            y = (rank + 1.0) * x**3
        first = inner.gradient(y, [x, x])[0]
    assert first.numpy().tolist() == [3.0 * sum_of_ranks(size), 12.0 * sum_of_ranks(size)]
    # Rank r: its part of d(first)/dx is 6 (r + 1) x, and each of the size losses that it is in counts.
    second = outer.gradient(first, x).numpy()
    assert second.tolist() == [6.0 * (rank + 1) * size, 12.0 * (rank + 1) * size]


@pytest.mark.parametrize("op", [sdp.ReduceOp.MIN, sdp.ReduceOp.MAX, sdp.ReduceOp.PRODUCT])
def test_other_operations_have_no_gradient(op):
    with pytest.raises(LookupError, match=f"ReduceOp.{op.name} is not defined"):
        eager(lambda x: sdp.allreduce(x, 0, 1, op=op), tf.constant(1.0))


def test_integers_have_no_gradient():
    x = tf.constant(1)
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = sdp.allreduce(x, 0, 1, op=SUM)
    assert tape.gradient(y, x) is None

"""Gradients of what gathers and scatters rows, against the same computation in one process.

Rank r's loss is (r + 1) * sum(c * y²) of the collective's result y, so no two rows have the same gradient;
the job's loss is the sum of these. The one process has all ranks' inputs, and does what the collective does
with TensorFlow's own ops.
"""

import numpy as np
import pytest
import tensorflow as tf
from gradient_modes import COMPILED_MODES, DYNAMIC_MODES, MODES, eager
from values import own_rows

import tf_smddp as sdp

pytestmark = pytest.mark.slow

AVERAGE, SUM = sdp.ReduceOp.AVERAGE, sdp.ReduceOp.SUM
ZERO = tf.UnconnectedGradients.ZERO


def input_of(rank, rows, dtype=tf.float32):
    return tf.cast(tf.reshape(tf.range(rows * 2), [rows, 2]) % 5 + rank + 1, dtype)


def loss_of(rank, y):
    weights = tf.cast(tf.range(tf.size(y)) % 3 + 1 + rank, y.dtype)
    return tf.cast(rank + 1, y.dtype) * tf.reduce_sum(weights * tf.reshape(y, [-1]) ** 2)


def alone(simulate, xs, rank):
    """The gradient for rank `rank`, in one process; `simulate` gives each rank's result from all inputs."""
    with tf.GradientTape() as tape:
        tape.watch(xs)
        results = simulate(xs)
        total = tf.add_n([loss_of(r, y) for r, results_of in enumerate(results) for y in results_of])
    return tape.gradient(total, xs)[rank]


def check(gradient, wanted):
    np.testing.assert_allclose(gradient.numpy(), wanted.numpy(), rtol=1e-5)
    assert gradient.shape == wanted.shape


@DYNAMIC_MODES
@pytest.mark.parametrize(
    "rows", [lambda r: 2, lambda r: r, lambda r: 3 - r], ids=["equal", "growing", "shrinking"]
)
def test_allgather(rank, size, gradient_of, rows):
    xs = [input_of(r, rows(r)) for r in range(size)]
    gradient = gradient_of(lambda x: loss_of(rank, sdp.allgather(x)), xs[rank])
    check(gradient, alone(lambda xs: [[tf.concat(xs, 0)]] * size, xs, rank))


@COMPILED_MODES
def test_what_is_compiled_gathers_as_many_rows_from_each_rank(rank, size, gradient_of):
    xs = [input_of(r, 2) for r in range(size)]

    def loss(x):
        return loss_of(rank, sdp.allgather(x)) + loss_of(rank, sdp.grouped_allgather([x[:1], 2.0 * x])[1])

    def simulate(xs):
        return [[tf.concat(xs, 0), 2.0 * tf.concat(xs, 0)]] * size

    check(gradient_of(loss, xs[rank]), alone(simulate, xs, rank))


@MODES
@pytest.mark.parametrize("op", [SUM, AVERAGE])
@pytest.mark.parametrize("rows", [6, 7, 1])
def test_reducescatter(rank, size, gradient_of, op, rows):
    xs = [input_of(r, rows) for r in range(size)]
    factors = {"prescale_factor": 0.5, "postscale_factor": 3.0}
    gradient = gradient_of(lambda x: loss_of(rank, sdp.reducescatter(x, op=op, **factors)), xs[rank])

    def simulate(xs):
        reduced = tf.add_n(xs) * 1.5 / (size if op is AVERAGE else 1)
        return [[part] for part in tf.split(reduced, own_rows(rows, size))]

    check(gradient, alone(simulate, xs, rank))


@DYNAMIC_MODES
def test_alltoall(rank, size, gradient_of):
    splits = [[(source + 2 * target) % 3 for target in range(size)] for source in range(size)]
    xs = [input_of(r, sum(splits[r])) for r in range(size)]
    gradient = gradient_of(lambda x: loss_of(rank, sdp.alltoall(x, splits[rank])[0]), xs[rank])

    def simulate(xs):
        parts = [tf.split(x, splits[r]) for r, x in enumerate(xs)]
        return [[tf.concat([parts[source][target] for source in range(size)], 0)] for target in range(size)]

    check(gradient, alone(simulate, xs, rank))


@MODES
def test_alltoall_without_splits(rank, size, gradient_of):
    xs = [input_of(r, 2 * size) for r in range(size)]
    gradient = gradient_of(lambda x: loss_of(rank, sdp.alltoall(x)), xs[rank])

    def simulate(xs):
        return [[tf.concat([x[2 * r : 2 * r + 2] for x in xs], 0)] for r in range(size)]

    check(gradient, alone(simulate, xs, rank))


@pytest.mark.one_tensorflow
@DYNAMIC_MODES
@pytest.mark.parametrize("used", [(0, 1), (1,)], ids=["both", "one"])
def test_grouped_allgather(rank, size, gradient_of, used):
    """The second of the group is of other rows, and integers in between have no gradient."""
    xs = [input_of(r, r + 1) for r in range(size)]

    def loss(x):
        results = sdp.grouped_allgather([x, tf.constant([[7, 7]]), x[:1]])[::2]
        return tf.add_n([loss_of(rank, results[i]) for i in used])

    def simulate(xs):
        results = [tf.concat(xs, 0), tf.concat([x[:1] for x in xs], 0)]
        return [[results[i] for i in used]] * size

    check(gradient_of(loss, xs[rank]), alone(simulate, xs, rank))


@pytest.mark.one_tensorflow
@MODES
@pytest.mark.parametrize("op", [SUM, AVERAGE])
def test_grouped_reducescatter(rank, size, gradient_of, op):
    xs = [input_of(r, 5) for r in range(size)]

    def loss(x):
        results = sdp.grouped_reducescatter([x, x[:2] * 2.0], op=op, postscale_factor=0.25)
        return tf.add_n([loss_of(rank, y) for y in results])

    def simulate(xs):
        divisor = 4.0 * (size if op is AVERAGE else 1)
        first = tf.split(tf.add_n(xs) / divisor, own_rows(5, size))
        second = tf.split(tf.add_n([x[:2] * 2.0 for x in xs]) / divisor, own_rows(2, size))
        return list(zip(first, second))

    check(gradient_of(loss, xs[rank]), alone(simulate, xs, rank))


@pytest.mark.one_tensorflow
@MODES
@pytest.mark.parametrize("op", [SUM, AVERAGE])
def test_allreduce_with_factors(rank, size, gradient_of, op):
    xs = [input_of(r, 3) for r in range(size)]
    factors = {"prescale_factor": 0.5, "postscale_factor": 3.0}

    def loss(x):
        return loss_of(rank, sdp.allreduce(x, 0, 1, op=op, **factors))

    def simulate(xs):
        return [[tf.add_n(xs) * 1.5 / (size if op is AVERAGE else 1)]] * size

    check(gradient_of(loss, xs[rank]), alone(simulate, xs, rank))


@MODES
def test_one_after_the_other(rank, size, gradient_of):
    """The gradients are collectives, too, and must not meet the wrong ones."""
    xs = [input_of(r, size) for r in range(size)]

    def loss(x):
        y = sdp.allgather(sdp.alltoall(x) * 2.0)
        return loss_of(rank, sdp.reducescatter(y * y, op=SUM))

    def simulate(xs):
        exchanged = [tf.concat([x[r : r + 1] for x in xs], 0) * 2.0 for r in range(size)]
        total = tf.concat(exchanged, 0) ** 2 * size
        return [[part] for part in tf.split(total, own_rows(size * size, size))]

    check(gradient_of(loss, xs[rank]), alone(simulate, xs, rank))


SECOND = {
    "allreduce": (lambda x: [sdp.allreduce(x, 0, 1)], lambda xs: [[tf.add_n(xs) / len(xs)]] * len(xs)),
    "grouped_allreduce": (
        lambda x: sdp.grouped_allreduce([x, x[:1]], op=SUM, prescale_factor=0.5),
        lambda xs: [[tf.add_n(xs) / 2.0, tf.add_n([x[:1] for x in xs]) / 2.0]] * len(xs),
    ),
    "broadcast": (lambda x: [sdp.broadcast(x, 0)], lambda xs: [[xs[0]]] * len(xs)),
    "allgather": (lambda x: [sdp.allgather(x)], lambda xs: [[tf.concat(xs, 0)]] * len(xs)),
    "grouped_allgather": (
        lambda x: sdp.grouped_allgather([x, x[:1]]),
        lambda xs: [[tf.concat(xs, 0), tf.concat([x[:1] for x in xs], 0)]] * len(xs),
    ),
    "reducescatter": (
        lambda x: [sdp.reducescatter(x, postscale_factor=3.0)],
        lambda xs: [[part] for part in tf.split(tf.add_n(xs) * 3.0 / len(xs), own_rows(3, len(xs)))],
    ),
    "grouped_reducescatter": (
        lambda x: sdp.grouped_reducescatter([x, 2.0 * x], op=SUM),
        lambda xs: [[part, 2.0 * part] for part in tf.split(tf.add_n(xs), own_rows(3, len(xs)))],
    ),
    "alltoall": (
        lambda x: [sdp.alltoall(x, [3] + [0] * (sdp.size() - 1))[0]],
        lambda xs: [[tf.concat(xs, 0)], *([xs[0][:0]] for _ in xs[1:])],
    ),
}


@pytest.mark.one_tensorflow
@DYNAMIC_MODES
@pytest.mark.parametrize("collective", SECOND)
def test_second_derivatives(rank, size, gradient_of, collective):
    """Those of the sum of squares of the gradient, which all ranks' inputs are in."""
    function, simulate = SECOND[collective]
    xs = [input_of(r, 3) for r in range(size)]

    def loss(x):
        return tf.add_n([loss_of(rank, y) for y in function(x)])

    with tf.GradientTape() as outer:
        outer.watch(xs)
        with tf.GradientTape() as inner:
            inner.watch(xs)
            total = tf.add_n([loss_of(r, y) for r, of_rank in enumerate(simulate(xs)) for y in of_rank])
        norm = tf.add_n([tf.reduce_sum(g**2) for g in inner.gradient(total, xs, unconnected_gradients=ZERO)])
    wanted = outer.gradient(norm, xs, unconnected_gradients=ZERO)[rank]
    check(gradient_of(lambda x: tf.reduce_sum(eager(loss, x) ** 2), xs[rank]), wanted)


@pytest.mark.one_tensorflow
def test_a_persistent_tape(rank, size):
    """Each gradient is a collective of its own; the second is another one than the first."""
    xs = [input_of(r, r + 1) for r in range(size)]
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(xs[rank])
        y = sdp.allgather(xs[rank])
        losses = [loss_of(rank, y), loss_of(rank, 2.0 * y)]
    once, twice, again = [tape.gradient(losses[i], xs[rank]) for i in (0, 1, 0)]
    check(once, alone(lambda xs: [[tf.concat(xs, 0)]] * size, xs, rank))
    check(twice, 4.0 * once)
    check(again, once)


@pytest.mark.one_tensorflow
@pytest.mark.parametrize("dtype", [tf.float64, tf.bfloat16, tf.complex64], ids=lambda dtype: dtype.name)
def test_types(rank, size, dtype):
    xs = [input_of(r, r + 1, dtype) for r in range(size)]

    def loss(x):
        return tf.math.real(tf.reduce_sum(sdp.allgather(x) * tf.cast(rank + 1, dtype)))

    total = sum(range(1, size + 1))
    assert (
        eager(loss, xs[rank]).numpy().tolist() == np.full((rank + 1, 2), total, dtype.as_numpy_dtype).tolist()
    )
    xs = [input_of(r, size, dtype) for r in range(size)]
    gradient = eager(
        lambda x: tf.math.real(tf.reduce_sum(sdp.reducescatter(x, op=SUM)) * (rank + 1)), xs[rank]
    )
    wanted = [[r + 1.0] * 2 for r in range(size)]
    assert gradient.numpy().tolist() == wanted


@pytest.mark.one_tensorflow
@pytest.mark.parametrize("op", [sdp.ReduceOp.MIN, sdp.ReduceOp.MAX, sdp.ReduceOp.PRODUCT])
def test_other_operations_have_no_gradient(op):
    for collective in (sdp.reducescatter, lambda x, op: sdp.grouped_reducescatter([x], op=op)[0]):
        with pytest.raises(LookupError, match=f"ReduceOp.{op.name} is not defined"):
            eager(lambda x, collective=collective: collective(x, op=op), tf.constant([1.0]))


@pytest.mark.one_tensorflow
def test_integers_have_no_gradient():
    x = tf.constant([1, 2])
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = sdp.allgather(x)
    assert tape.gradient(y, x) is None

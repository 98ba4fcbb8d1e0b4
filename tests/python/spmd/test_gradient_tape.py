"""DistributedGradientTape is a tf.GradientTape whose gradients are those of all ranks."""

import collections

import pytest
import tensorflow as tf
from values import sum_of_ranks

import tf_smddp as sdp
from tf_smddp._base import arguments

pytestmark = [pytest.mark.one_rank, pytest.mark.gpu]

SUM = sdp.ReduceOp.SUM
Pair = collections.namedtuple("Pair", "a b")

EAGER_AND_GRAPH = pytest.mark.parametrize("mode", [lambda f: f, tf.function], ids=["eager", "graph"])


@EAGER_AND_GRAPH
def test_average_is_the_default(rank, size, mode):
    x = tf.Variable([1.0, 2.0])

    @mode
    def step():
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum((rank + 1.0) * x)
        return sdp.DistributedGradientTape(tape).gradient(loss, x)

    assert step().numpy().tolist() == [sum_of_ranks(size) / size] * 2


@EAGER_AND_GRAPH
@pytest.mark.parametrize("op", list(sdp.ReduceOp))
def test_every_operation(rank, size, mode, op):
    x = tf.Variable(1.0)

    @mode
    def step():
        with tf.GradientTape() as tape:
            loss = (rank + 1.0) * x
        return sdp.DistributedGradientTape(tape, op=op).gradient(loss, x)

    factorial = 1
    for i in range(size):
        factorial *= i + 1
    wanted = {"SUM": sum_of_ranks(size), "AVERAGE": sum_of_ranks(size) / size, "MIN": 1, "MAX": size}
    assert float(step()) == wanted.get(op.name, factorial)


@EAGER_AND_GRAPH
def test_nested_sources_with_none_and_twins(rank, size, mode):
    a, b, unused = tf.Variable(1.0), tf.Variable([2.0, 3.0]), tf.Variable(4.0)
    total = sum_of_ranks(size)

    @mode
    def step():
        with tf.GradientTape() as tape:
            loss = (rank + 1.0) * (2.0 * a + tf.reduce_sum(3.0 * b))
        tape = sdp.DistributedGradientTape(tape, op=SUM)
        return tape.gradient(loss, {"one": a, "pair": Pair(b, unused), "list": [a, (b, b)]})

    gradients = step()
    assert float(gradients["one"]) == float(gradients["list"][0]) == 2 * total
    assert isinstance(gradients["pair"], Pair)
    assert gradients["pair"].b is None
    for gradient in (gradients["pair"].a, *gradients["list"][1]):
        assert gradient.numpy().tolist() == [3 * total] * 2


@EAGER_AND_GRAPH
def test_nothing_connected(mode):
    x = tf.Variable(1.0)

    @mode
    def step():
        with tf.GradientTape() as tape:
            loss = tf.constant(1.0)
        return sdp.DistributedGradientTape(tape).gradient(loss, [x])

    assert step() == [None]


@EAGER_AND_GRAPH
def test_unconnected_gradients_and_output_gradients(rank, size, mode):
    x, unused = tf.Variable([1.0, 2.0]), tf.Variable([1.0])

    @mode
    def step():
        with tf.GradientTape() as tape:
            y = x * 2.0
        return sdp.DistributedGradientTape(tape, op=SUM).gradient(
            y,
            [x, unused],
            output_gradients=tf.constant([1.0, 10.0]),
            unconnected_gradients=tf.UnconnectedGradients.ZERO,
        )

    first, second = step()
    assert first.numpy().tolist() == [2.0 * size, 20.0 * size]
    assert second.numpy().tolist() == [0.0]


def test_persistent_tape_and_context_manager(rank, size):
    x = tf.constant(3.0)
    with sdp.DistributedGradientTape(tf.GradientTape(persistent=True), op=SUM) as tape:
        tape.watch(x)
        y = (rank + 1.0) * x**2
        z = y * x
    assert isinstance(tape, tf.GradientTape)
    for _ in range(2):
        assert float(tape.gradient(y, x)) == 6.0 * sum_of_ranks(size)
    assert float(tape.gradient(z, x)) == 27.0 * sum_of_ranks(size)
    assert tape.watched_variables() == ()


def test_other_attributes_are_the_wrapped_tapes(rank):
    x = tf.Variable([1.0, 2.0])
    wrapped = tf.GradientTape(persistent=True)
    wrapped.note = "mine"
    tape = sdp.DistributedGradientTape(wrapped)
    with tape:
        y = (rank + 1.0) * x**2
        with tape.stop_recording():
            x * x
    assert [v is x for v in tape.watched_variables()] == [True]
    assert tape.jacobian(y, x).numpy().tolist() == [[2.0 * (rank + 1), 0.0], [0.0, 4.0 * (rank + 1)]]
    rows = tf.constant([[1.0, 2.0]])
    with tape:
        tape.watch(rows)
        squares = rows**2
    assert tape.batch_jacobian(squares, rows).numpy().tolist() == [[[2.0, 0.0], [0.0, 4.0]]]
    assert tape.note == "mine"
    with pytest.raises(AttributeError):
        _ = tape.nothing_of_this_name
    with tape:
        x * x
        tape.reset()
    assert tape.watched_variables() == ()


def test_gradient_in_a_v1_session(rank, size):
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        x = tf.constant([1.0, 2.0])
        with tf.GradientTape() as tape:
            tape.watch(x)
            loss = (rank + 1.0) * tf.reduce_sum(x)
        gradients = sdp.DistributedGradientTape(tape, op=SUM).gradient(loss, [x, x])
        for gradient in session.run(gradients):
            assert gradient.tolist() == [sum_of_ranks(size)] * 2


def test_device_hints_warn_once(monkeypatch, recwarn):
    monkeypatch.setattr(arguments, "_warned_of_device", False)
    for _ in range(2):
        sdp.DistributedGradientTape(tf.GradientTape(), device_dense="/gpu:0", device_sparse="/cpu:0")
    assert len(recwarn) == 1
    assert "device_dense='/gpu:0'" in str(recwarn[0].message)
    assert recwarn[0].filename == __file__


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"gradtape": 3}, "wraps a tf.GradientTape, but got 3"),
        ({"gradtape": tf.GradientTape(), "op": "sum"}, "op must be one of .* but is 'sum'"),
        ({"gradtape": tf.GradientTape(), "compression": int}, "compression must be .* but is <class 'int'>"),
    ],
)
def test_bad_arguments(arguments, text):
    with pytest.raises(TypeError, match=text):
        sdp.DistributedGradientTape(**arguments)

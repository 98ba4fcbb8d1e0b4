"""Data that ends inside a step: that step draws the same tickets on all ranks, so the next epoch pairs up."""

import random
import time

import keras
import numpy as np
import pytest
import tensorflow as tf

import tf_smddp as sdp

pytestmark = pytest.mark.one_rank

_EPOCHS = 15
_STEPS = 3


def _dataset(rank: int, steps: int = _STEPS) -> tf.data.Dataset:
    """0, 1 and so on, plus the rank. TensorFlow does not know how many."""

    def delayed(number: tf.Tensor) -> tf.Tensor:
        # Each rank's data come at times of their own, and so does the end.
        time.sleep(random.random() * 0.01)
        return number

    data = tf.data.Dataset.range(steps + 1)
    data = data.map(lambda x: tf.ensure_shape(tf.py_function(delayed, [x], tf.int64), []))
    data = data.filter(lambda x: x < steps)
    return data.map(lambda x: tf.cast(x + rank, tf.float32))


def test_epochs_end_with_out_of_range_inside_the_function():
    rank, size = sdp.rank(), sdp.size()
    data = _dataset(rank)

    @tf.function
    def step(iterator):
        value = next(iterator)
        return sdp.allreduce(value, 0, 1, op=sdp.ReduceOp.SUM)

    for _ in range(_EPOCHS):
        iterator = iter(data)
        sums = []
        try:
            while True:
                sums.append(float(step(iterator)))
        except (tf.errors.OutOfRangeError, StopIteration):
            pass
        assert sums == [size * number + size * (size - 1) / 2 for number in range(_STEPS)]


def _total(x):
    return sdp.allreduce(x, 0, 1, op=sdp.ReduceOp.SUM)


def _nested(count):
    @tf.function
    def nested(x):
        count.assign_add(1.0)
        return _total(x)

    return nested


def in_a_nested_function(nested, count, first, second):
    return nested(next(first))


def data_and_collective_in_nested_functions(nested, count, first, second):
    take = tf.function(lambda iterator: next(iterator))
    return nested(take(first))


def in_a_branch(nested, count, first, second):
    """Which one does not depend on the data."""
    x = next(first)
    return tf.cond(count >= 0, lambda: _total(x), lambda: x)


def in_a_loop(nested, count, first, second):
    """Ends in the second iteration. No iteration but the sum waits for the collective of the one before."""

    def body(i, sum_so_far):
        return i + 1, sum_so_far + _total(next(first))

    return tf.while_loop(lambda i, _: i < 2, body, (0, 0.0), parallel_iterations=4)[1]


def two_steps(nested, count, first, second):
    """Ends between the two."""
    return nested(next(first)) + nested(next(first))


def two_iterators(nested, count, first, second):
    """The second one ends earlier, when the collective of the first one may be under way."""
    return _total(next(first)) + nested(next(second))


@pytest.mark.parametrize(
    "program, sums",
    [
        (in_a_nested_function, [0, 1, 2]),
        (data_and_collective_in_nested_functions, [0, 1, 2]),
        (in_a_branch, [0, 1, 2]),
        (in_a_loop, [1]),
        (two_steps, [1]),
        (two_iterators, [0, 2]),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_the_step_ends_before_or_between_its_collectives(program, sums):
    rank, size = sdp.rank(), sdp.size()
    data, less = _dataset(rank), _dataset(rank, _STEPS - 1)
    count = tf.Variable(0.0)
    nested = _nested(count)
    step = tf.function(lambda first, second: program(nested, count, first, second), reduce_retracing=True)
    taken = 2 if program in (in_a_loop, two_steps, two_iterators) else 1
    for _ in range(4):
        iterators = iter(data), iter(less)
        found = []
        try:
            while True:
                found.append(float(step(*iterators)))
        except (tf.errors.OutOfRangeError, StopIteration):
            pass
        assert found == [size * x + taken * size * (size - 1) / 2 for x in sums]


@pytest.mark.parametrize(
    "options",
    [
        {},
        pytest.param({"steps_per_execution": 2}, marks=pytest.mark.keras(3)),
        pytest.param({"backward_passes_per_step": 2}, marks=pytest.mark.keras(2)),
    ],
    ids=lambda options: next(iter(options), "plain"),
)
def test_fit(options):
    """Over batches of which Keras does not know the number, which ends the epoch by itself."""
    passes = options.pop("backward_passes_per_step", 1)
    data = _dataset(sdp.rank(), 4).map(lambda x: (tf.fill([2, 1], x), tf.ones([2, 1])))
    model = keras.Sequential([keras.layers.Dense(1, kernel_initializer="zeros")])
    optimizer = sdp.DistributedOptimizer(
        keras.optimizers.SGD(0.01), **({"backward_passes_per_step": passes} if passes > 1 else {})
    )
    model.compile(optimizer, "mse", **options)
    for repeat in range(1, 4):
        model.fit(data, epochs=2, verbose=0)
        assert int(optimizer.iterations) == repeat * 2 * 4 // passes
    for weight in model.get_weights():
        np.testing.assert_array_equal(sdp.broadcast(weight, 0), weight)


def test_a_session_whose_collective_has_a_name():
    """The data may end before the mark of the step runs."""
    with tf.Graph().as_default():
        data = tf.data.Dataset.from_tensors(1.0).repeat(2)
        iterator = tf.compat.v1.data.make_initializable_iterator(data)
        total = sdp.allreduce(iterator.get_next(), 0, 1, op=sdp.ReduceOp.SUM, name="total")
        with tf.compat.v1.Session() as session:
            for _ in range(200):
                session.run(iterator.initializer)
                for _ in range(2):
                    assert session.run(total) == sdp.size()
                with pytest.raises(tf.errors.OutOfRangeError):
                    session.run(total)

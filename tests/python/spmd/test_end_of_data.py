"""Data that ends inside a step: that step draws no ticket, so the next epoch still pairs up."""

import random
import time

import pytest
import tensorflow as tf

import tf_smddp as sdp

pytestmark = pytest.mark.one_rank

_EPOCHS = 15
_STEPS = 3


def _dataset(rank: int) -> tf.data.Dataset:
    def delayed(number: tf.Tensor) -> tf.Tensor:
        # Each rank's data come at times of their own, and so does the end.
        time.sleep(random.random() * 0.01)
        return number

    data = tf.data.Dataset.range(_STEPS + 1)
    data = data.map(lambda x: tf.ensure_shape(tf.py_function(delayed, [x], tf.int64), []))
    return data.filter(lambda x: x < _STEPS).map(lambda x: tf.cast(x + rank, tf.float32))


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

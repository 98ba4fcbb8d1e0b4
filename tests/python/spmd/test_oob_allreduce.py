"""Out-of-band allreduce: losses and metrics, which do not shift other collectives."""

import threading

import numpy as np
import pytest
import tensorflow as tf
from modes import ALL_MODES, MODES
from values import COMBINATIONS, SHAPES, assert_equal, of_rank, reduced, sum_of_ranks

import tf_smddp as sdp

pytestmark = pytest.mark.one_rank

SUM = sdp.ReduceOp.SUM


@ALL_MODES
def test_all_types_and_operations(rank, size, mode):
    inputs = [
        tf.constant(of_rank(SHAPES[i % 4], dtype, rank, i)) for i, (dtype, _) in enumerate(COMBINATIONS)
    ]

    def reduce(*tensors):
        return [sdp.oob_allreduce(x, op=op) for x, (_, op) in zip(tensors, COMBINATIONS)]

    for i, (found, (dtype, op)) in enumerate(zip(mode(reduce)(*inputs), COMBINATIONS)):
        assert_equal(found, reduced(SHAPES[i % 4], dtype, op, size, i), (dtype, op))


@MODES
def test_values_that_are_converted_to_tensors(rank, size, mode):
    def check(value, wanted, dtype):
        found = mode(lambda: sdp.oob_allreduce(value))()
        assert found.dtype == dtype
        assert found.numpy().tolist() == wanted

    check(float(rank), (size - 1) / 2, tf.float32)
    check(rank, (size - 1) // 2, tf.int32)
    check(np.full(2, rank, np.float64), [(size - 1) / 2] * 2, tf.float64)
    check(tf.Variable([rank, -rank]), [(size - 1) // 2, -((size - 1) // 2)], tf.int32)


@MODES
def test_structures(rank, size, mode):
    @mode
    def function(x):
        first, second = sdp.oob_allreduce([x, 1], op=SUM)
        for each in sdp.oob_allreduce([1.0, x], op=SUM):
            first += each
        logs = sdp.oob_allreduce({"loss": x, "parts": (1.0, [[1, 2]])}, op=SUM)
        return first, second, logs

    first, second, logs = function(tf.constant(rank + 1.0))
    assert float(first) == 2 * sum_of_ranks(size) + size
    assert int(second) == size
    assert float(logs["loss"]) == sum_of_ranks(size)
    assert float(logs["parts"][0]) == size
    assert [[int(x) for x in row] for row in logs["parts"][1]] == [[size, 2 * size]]
    assert sdp.oob_allreduce([]) == []


def test_a_result_that_only_one_rank_uses(rank, size):
    seen = []

    @tf.function
    def step(x):
        loss = sdp.oob_allreduce(x, op=SUM)
        if rank == 0:
            tf.numpy_function(lambda value: seen.append(float(value)), [loss], [])
        return x

    for i in range(5):
        step(tf.constant(i + rank + 1.0))
    assert seen == ([sum_of_ranks(size) + i * size for i in range(5)] if rank == 0 else [])


def test_beside_gradients_and_broadcasts(rank, size):
    """A thread of its own: its calls fall between the others' at another place on each rank."""
    weight = tf.Variable(2.0)
    failures = []

    @tf.function
    def step(x):
        with tf.GradientTape() as tape:
            loss = weight * x
        tape = sdp.DistributedGradientTape(tape, op=SUM)
        return tape.gradient(loss, weight), sdp.broadcast(x, size - 1)

    def watch():
        try:
            for i in range(50):
                assert float(sdp.oob_allreduce(float(i + rank), op=SUM)) == i * size + sum(range(size))
        except BaseException as error:
            failures.append(error)

    watcher = threading.Thread(target=watch)
    watcher.start()
    for i in range(50):
        gradient, root = step(tf.constant(i + rank + 1.0))
        assert float(gradient) == i * size + sum_of_ranks(size)
        assert float(root) == i + size
    watcher.join()
    assert not failures, failures


def test_in_a_step_with_gradients(rank, size):
    """The loss is reduced before the backward pass on some ranks, and after it on the others."""
    weight = tf.Variable(2.0)

    @tf.function
    def step(x):
        with tf.GradientTape() as tape:
            loss = weight * x
        if rank % 2 == 0:
            mean = sdp.oob_allreduce(loss)
        gradient = sdp.DistributedGradientTape(tape, op=SUM).gradient(loss, weight)
        if rank % 2 == 1:
            mean = sdp.oob_allreduce(loss)
        return gradient, mean

    for _ in range(3):
        gradient, mean = step(tf.constant(rank + 1.0))
        assert float(gradient) == sum_of_ranks(size)
        assert float(mean) == pytest.approx(2 * sum_of_ranks(size) / size)


def test_compression_and_process_set(rank, size):
    class Halved(sdp.Compression.none):
        @staticmethod
        def compress(tensor):
            return tensor / 2.0, None

    assert float(sdp.oob_allreduce(rank + 1.0, Halved, SUM)) == sum_of_ranks(size) / 2
    assert float(sdp.oob_allreduce(rank + 1.0, sdp.Compression.fp16, SUM)) == sum_of_ranks(size)
    alone = sdp.add_process_set([size - 1]) if size > 1 else sdp.global_process_set
    if alone.included():
        assert float(sdp.oob_allreduce(rank + 1.0, process_set=alone)) == size
    if size > 1:
        sdp.remove_process_set(alone)


@MODES
def test_gradient(rank, size, mode):
    @mode
    def gradient(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = sdp.oob_allreduce(x, op=SUM) ** 2
        return tape.gradient(y, x)

    assert float(gradient(tf.constant(rank + 1.0))) == 2 * sum_of_ranks(size) * size


def test_ranks_that_disagree(rank, size):
    if size > 1:
        with pytest.raises(tf.errors.InternalError, match=r"at out-of-band collective \d+"):
            sdp.oob_allreduce(tf.zeros([2 + rank]))
    assert float(sdp.oob_allreduce(1.0, op=SUM)) == size


@pytest.mark.min_ranks(2)
@pytest.mark.parametrize("mode", [lambda f: f, tf.function], ids=["eager", "graph"])
@pytest.mark.parametrize(
    "disagreeing",
    [
        lambda rank: [1.0] * (1 + rank),  # another number of tensors
        lambda rank: [tf.zeros([2 + rank]), 1.0, 1.0],  # the first differs
        lambda rank: [1.0, tf.zeros([2 + rank]), 1.0],
    ],
    ids=["number", "first", "second"],
)
def test_lists_that_disagree(rank, size, mode, disagreeing):
    """The rest of a failed list meets nothing that comes after it."""
    reduce = mode(lambda: sdp.oob_allreduce(disagreeing(rank)))
    for i in range(10):
        with pytest.raises(tf.errors.OpError, match="the ranks run different collectives"):
            reduce()
        assert float(sdp.oob_allreduce(float(rank + i), op=SUM)) == sum(range(size)) + i * size
        assert float(sdp.allreduce(float(rank + i), 0, 1, op=SUM)) == sum(range(size)) + i * size


def test_bad_arguments():
    with pytest.raises(TypeError, match=r"oob_allreduce.* does not take a tensor of type string"):
        sdp.oob_allreduce("text")
    with pytest.raises(ValueError, match=r"ReduceOp.AVERAGE is not defined for bool"):
        sdp.oob_allreduce(True)
    with pytest.raises(TypeError, match="op must be one of"):
        sdp.oob_allreduce(1.0, op="sum")
    with pytest.raises(TypeError, match="RaggedTensor"):
        sdp.oob_allreduce(tf.ragged.constant([[1.0], []]))

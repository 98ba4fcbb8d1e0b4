"""All operations on all types, in every way that TensorFlow runs an op."""

import numpy as np
import pytest
import tensorflow as tf
from modes import ALL_MODES
from values import (
    ALL_TYPES,
    COMBINATIONS,
    INTEGER_TYPES,
    SHAPES,
    assert_equal,
    of_rank,
    reduced,
    sum_of_ranks,
)

import tf_smddp as sdp

pytestmark = [pytest.mark.one_rank, pytest.mark.gpu]


def inputs(rank):
    """A tensor for each combination; the shapes take turns."""
    return [
        (tf.constant(of_rank(SHAPES[i % 4], dtype, rank, i)), op)
        for i, (dtype, op) in enumerate(COMBINATIONS)
    ]


def expected(size):
    return [reduced(SHAPES[i % 4], dtype, op, size, i) for i, (dtype, op) in enumerate(COMBINATIONS)]


def allreduce_all(tensors):
    """All combinations, each a group of its own."""
    return [sdp.allreduce(tensor, 0, 1, op=op) for tensor, (_, op) in zip(tensors, COMBINATIONS)]


def check_all(results, size):
    for result, wanted, combination in zip(results, expected(size), COMBINATIONS):
        assert_equal(result, wanted, combination)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_eager(rank, size, shape):
    for dtype, op in COMBINATIONS:
        result = sdp.allreduce(of_rank(shape, dtype, rank), 0, 1, op=op)
        assert_equal(result, reduced(shape, dtype, op, size), (dtype, op))


def test_function(rank, size):
    function = tf.function(allreduce_all)
    for _ in range(3):
        check_all(function([tensor for tensor, _ in inputs(rank)]), size)


def test_nested_functions(rank, size):
    inner = tf.function(allreduce_all)
    middle = tf.function(lambda tensors: inner(tensors) + inner(tensors))
    outer = tf.function(lambda tensors: middle(tensors) + allreduce_all(tensors))
    results = outer([tensor for tensor, _ in inputs(rank)])
    for third in range(3):
        check_all(results[third * len(COMBINATIONS) : (third + 1) * len(COMBINATIONS)], size)


@pytest.mark.parametrize("branch", [True, False])
def test_cond(rank, size, branch):
    @tf.function
    def function(tensors, predicate):
        return tf.cond(
            predicate,
            lambda: allreduce_all(tensors),
            lambda: [tf.identity(tensor) for tensor in allreduce_all(tensors)],
        )

    check_all(function([tensor for tensor, _ in inputs(rank)], tf.constant(branch)), size)


def test_while_loop(rank, size):
    @tf.function
    def function(tensors):
        def body(i, last):
            return i + 1, allreduce_all(tensors)

        return tf.while_loop(lambda i, _: i < 3, body, (0, tensors), parallel_iterations=10)[1]

    check_all(function([tensor for tensor, _ in inputs(rank)]), size)


def test_v1_session(rank, size):
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        results = allreduce_all([tensor for tensor, _ in inputs(rank)])
        for _ in range(3):
            check_all(session.run(results), size)


def test_v1_session_meets_by_name(rank, size):
    """The ranks build the same ops in another order, and still each meets its own."""
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        results = {
            name: sdp.allreduce(
                tf.constant([float(name * 10 + rank)]), 0, 1, op=sdp.ReduceOp.SUM, name=f"op{name}:0"
            )
            for name in (range(4) if rank % 2 else reversed(range(4)))
        }
        broadcasts = {name: sdp.broadcast(results[name], 0, name=f"root{name}") for name in results}
        for found in session.run([results, broadcasts, sdp.barrier(name="end")])[:2]:
            for name in range(4):
                assert found[name] == sum(name * 10 + r for r in range(size))


def test_v1_function_inside_a_session(rank, size):
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        result = tf.function(lambda x: sdp.allreduce(x, 0, 1, op=sdp.ReduceOp.SUM))(tf.constant(rank + 1.0))
        assert session.run(result) == sum_of_ranks(size)


@ALL_MODES
def test_grouped_allreduce(rank, size, mode):
    tensors = inputs(rank)
    for op in sdp.ReduceOp:
        positions = [i for i, combination in enumerate(COMBINATIONS) if combination[1] is op]
        function = mode(lambda group, op=op: sdp.grouped_allreduce(group, op=op))
        results = function([tensors[i][0] for i in positions])
        assert len(results) == len(positions)
        for i, result in zip(positions, results):
            assert_equal(result, expected(size)[i], COMBINATIONS[i])
    assert sdp.grouped_allreduce([]) == []


def test_grouped_allreduce_in_a_v1_session(rank, size):
    """One rank makes other ops before: only the names are the same."""
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        for i in range(rank):
            tf.constant(i)
        tensors = [tf.constant([float(i + rank)]) for i in range(3)]
        named = sdp.grouped_allreduce(tensors, op=sdp.ReduceOp.SUM, name="mine")
        unnamed = sdp.grouped_allreduce(tensors, op=sdp.ReduceOp.SUM)
        for found in session.run([named, unnamed]):
            assert [float(x[0]) for x in found] == [i * size + sum(range(size)) for i in range(3)]


def test_large_tensor(rank, size):
    count = (1 << 20) + 1
    tensor = tf.constant(of_rank((count,), tf.float32, rank))
    wanted = reduced((count,), tf.float32, sdp.ReduceOp.SUM, size)
    assert_equal(sdp.allreduce(tensor, 0, 1, op=sdp.ReduceOp.SUM), wanted)
    assert_equal(tf.function(lambda x: sdp.allreduce(x, 0, 1, op=sdp.ReduceOp.SUM))(tensor), wanted)


@ALL_MODES
def test_integer_average_is_that_of_the_exact_sum_cut_towards_zero(rank, size, mode):
    """Also where the type cannot hold the sum; in every reduction."""

    def average(tensors):
        return [
            [sdp.allreduce(x, 0, 1) for x in tensors],
            sdp.grouped_allreduce(tensors),
            [sdp.allgather(sdp.reducescatter(x)) for x in tensors],
            sdp.grouped_allgather(sdp.grouped_reducescatter(tensors)),
        ]

    def values(dtype, rank):
        low, high = int(dtype.min), int(dtype.max)
        # The number of elements is divisible by each number of ranks.
        return [low, high, low + rank, high - rank, low if rank == 0 else high, low // 3]

    def exact(dtype):
        sums = [sum(column) for column in zip(*(values(dtype, r) for r in range(size)))]
        quotients = [abs(total) // size * (1 if total > 0 else -1) for total in sums]
        return np.array(quotients, dtype.as_numpy_dtype)

    tensors = [tf.constant(np.array(values(dtype, rank), dtype.as_numpy_dtype)) for dtype in INTEGER_TYPES]
    for results in mode(average)(tensors):
        for dtype, result in zip(INTEGER_TYPES, results):
            assert_equal(result, exact(dtype), dtype)


def test_nan_and_infinity_reach_all_ranks(rank, size):
    last = rank == size - 1
    tensor = tf.constant([np.nan if last else 1.0, np.inf if last else 1.0, 1.0])
    for op in (sdp.ReduceOp.SUM, sdp.ReduceOp.MIN, sdp.ReduceOp.MAX):
        result = sdp.allreduce(tensor, 0, 1, op=op).numpy()
        assert np.isnan(result[0])
        assert np.isinf(result[1]) or op is sdp.ReduceOp.MIN
        assert np.isfinite(result[2])


@ALL_MODES
def test_broadcast_from_each_root(rank, size, mode):
    for root in range(size):
        function = mode(lambda tensors, root=root: [sdp.broadcast(tensor, root) for tensor in tensors])
        results = function([tf.constant(of_rank((5,), dtype, rank)) for dtype in ALL_TYPES])
        for dtype, result in zip(ALL_TYPES, results):
            assert_equal(result, of_rank((5,), dtype, root), (root, dtype))


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_broadcast_shapes(rank, size, shape):
    result = sdp.broadcast(of_rank(shape, tf.float32, rank), size - 1)
    assert_equal(result, of_rank(shape, tf.float32, size - 1))


def test_barrier(size):
    assert sdp.barrier() is None
    tf.function(sdp.barrier)()
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        session.run(sdp.barrier())


def test_result_has_a_static_shape(rank, size):
    @tf.function
    def function(x):
        assert sdp.allreduce(x, 0, 1).shape == (2, 3)
        assert sdp.broadcast(x, 0).shape == (2, 3)
        return sdp.allreduce(x, 0, 1)

    function(tf.zeros((2, 3)))

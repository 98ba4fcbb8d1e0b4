"""reducescatter: each rank has its rows of the reduction; the first ranks have one more if need be."""

import pytest
import tensorflow as tf
from modes import ALL_MODES
from values import COMBINATIONS, assert_equal, of_rank, offset_of, own_rows, reduced

import tf_smddp as sdp

pytestmark = [pytest.mark.one_rank, pytest.mark.gpu]

SUM = sdp.ReduceOp.SUM
SHAPES = ((6,), (7, 2), (1, 3), (0, 4), (2, 0), (5, 2, 3))


def scattered(shape, dtype, op, rank, size, salt=0):
    counts = own_rows(shape[0], size)
    begin = offset_of(counts, rank)
    return reduced(shape, dtype, op, size, salt)[begin : begin + counts[rank]]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_eager(rank, size, shape):
    for dtype, op in COMBINATIONS:
        result = sdp.reducescatter(of_rank(shape, dtype, rank), op=op)
        assert_equal(result, scattered(shape, dtype, op, rank, size), (dtype, op))


def test_function(rank, size):
    @tf.function
    def function(tensors):
        return [sdp.reducescatter(x, op=op) for x, (_, op) in zip(tensors, COMBINATIONS)]

    shapes = [SHAPES[i % len(SHAPES)] for i in range(len(COMBINATIONS))]
    tensors = [
        tf.constant(of_rank(shape, dtype, rank, i))
        for i, (shape, (dtype, _)) in enumerate(zip(shapes, COMBINATIONS))
    ]
    for _ in range(3):
        for i, result in enumerate(function(tensors)):
            dtype, op = COMBINATIONS[i]
            assert_equal(result, scattered(shapes[i], dtype, op, rank, size, i), COMBINATIONS[i])


def test_v1_session(rank, size):
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        results = [
            sdp.reducescatter(tf.constant(of_rank((7, 2), dtype, rank)), op=op) for dtype, op in COMBINATIONS
        ]
        for _ in range(2):
            for (dtype, op), result in zip(COMBINATIONS, session.run(results)):
                assert_equal(result, scattered((7, 2), dtype, op, rank, size), (dtype, op))


@ALL_MODES
@pytest.mark.parametrize("op", sdp.ReduceOp)
def test_grouped(rank, size, mode, op):
    kinds = [
        (dtype, SHAPES[i % len(SHAPES)]) for i, (dtype, _) in enumerate(c for c in COMBINATIONS if c[1] is op)
    ]
    function = mode(lambda tensors: sdp.grouped_reducescatter(tensors, op=op))
    tensors = [tf.constant(of_rank(shape, dtype, rank, i)) for i, (dtype, shape) in enumerate(kinds)]
    for i, result in enumerate(function(tensors)):
        dtype, shape = kinds[i]
        assert_equal(result, scattered(shape, dtype, op, rank, size, i), kinds[i])
    assert sdp.grouped_reducescatter([]) == []


def test_average_is_the_default(rank, size):
    result = sdp.reducescatter(tf.fill([size], float(rank)))
    assert result.numpy().tolist() == [sum(range(size)) / size]


def test_a_large_tensor(rank, size):
    shape = (100003, 3)
    result = sdp.reducescatter(of_rank(shape, tf.float32, rank), op=SUM)
    assert_equal(result, scattered(shape, tf.float32, SUM, rank, size))


def test_the_parts_are_those_of_the_allreduce(rank, size):
    """Also where the sum is rounded."""
    x = tf.random.stateless_normal([997, 5], seed=[rank, 2], dtype=tf.bfloat16)
    whole = sdp.allreduce(x, 0, 1)
    assert_equal(sdp.allgather(sdp.reducescatter(x)), whole.numpy())


def test_static_shape():
    @tf.function
    def function(x):
        assert sdp.reducescatter(x).shape.as_list() == [None, 3]
        return sdp.reducescatter(x)

    function(tf.zeros((2, 3)))


def test_bad_arguments():
    with pytest.raises(ValueError, match=r"reducescatter\(\) needs a tensor with rows.*Reshape it to \[1\]"):
        sdp.reducescatter(1.0)
    with pytest.raises(ValueError, match=r"ReduceOp.SUM is not defined for bool"):
        sdp.reducescatter([True], op=SUM)
    with pytest.raises(ValueError, match=r"ReduceOp.MAX is not defined for complex64"):
        sdp.reducescatter(tf.constant([1j], tf.complex64), op=sdp.ReduceOp.MAX)
    with pytest.raises(TypeError, match=r"op must be one of"):
        sdp.grouped_reducescatter([[1.0]], op="sum")

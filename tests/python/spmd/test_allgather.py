"""allgather: all ranks' rows on every rank, however many each has."""

import numpy as np
import pytest
import tensorflow as tf
from modes import ALL_DYNAMIC_MODES, MODES, compiled
from values import ALL_TYPES, assert_equal, of_rank

import tf_smddp as sdp

pytestmark = [pytest.mark.one_rank, pytest.mark.gpu]

# The number of rows of rank r: equal, one more on each rank, none on some ranks, none at all.
ROWS = {
    "equal": lambda rank: 3,
    "growing": lambda rank: rank + 1,
    "some empty": lambda rank: 0 if rank % 2 == 0 else 4,
    "all empty": lambda rank: 0,
}
INNER = ((), (1,), (2, 3), (0,))


def rows_of(dtype, rank, rows, inner=(5,), salt=0):
    return of_rank((rows, *inner), dtype, rank, salt)


def gathered(dtype, size, rows, inner=(5,), salt=0):
    return np.concatenate([rows_of(dtype, rank, rows(rank), inner, salt) for rank in range(size)])


@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize("inner", INNER, ids=str)
def test_eager(rank, size, rows, inner):
    for dtype in ALL_TYPES:
        result = sdp.allgather(rows_of(dtype, rank, ROWS[rows](rank), inner))
        assert_equal(result, gathered(dtype, size, ROWS[rows], inner), dtype)


@pytest.mark.parametrize("rows", ROWS)
def test_function(rank, size, rows):
    function = tf.function(lambda tensors: [sdp.allgather(tensor) for tensor in tensors])
    for _ in range(3):
        results = function([tf.constant(rows_of(dtype, rank, ROWS[rows](rank))) for dtype in ALL_TYPES])
        for dtype, result in zip(ALL_TYPES, results):
            assert_equal(result, gathered(dtype, size, ROWS[rows]), dtype)


def test_v1_session(rank, size):
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        results = [
            sdp.allgather(tf.constant(rows_of(dtype, rank, rank + 1)), name=f"gather_{dtype.name}")
            for dtype in (ALL_TYPES if rank % 2 else reversed(ALL_TYPES))
        ]
        for _ in range(3):
            found = session.run(results)
            for dtype, result in zip(ALL_TYPES, found if rank % 2 else reversed(found)):
                assert_equal(result, gathered(dtype, size, ROWS["growing"]), dtype)


@ALL_DYNAMIC_MODES
def test_grouped(rank, size, mode):
    function = mode(lambda tensors: sdp.grouped_allgather(tensors, name="group"))
    tensors = [tf.constant(rows_of(dtype, rank, rank + i % 3, salt=i)) for i, dtype in enumerate(ALL_TYPES)]
    for _ in range(3):
        for i, result in enumerate(function(tensors)):
            assert_equal(result, gathered(ALL_TYPES[i], size, lambda r, i=i: r + i % 3, salt=i), ALL_TYPES[i])
    assert sdp.grouped_allgather([]) == []


def test_compiled(rank, size):
    """XLA's shapes are fixed: as many rows from each rank."""

    @compiled
    def function(tensors):
        return [sdp.allgather(tensor) for tensor in tensors], sdp.grouped_allgather(tensors)

    tensors = [tf.constant(rows_of(dtype, rank, 2, salt=i)) for i, dtype in enumerate(ALL_TYPES)]
    for results in function(tensors):
        for i, result in enumerate(results):
            assert_equal(result, gathered(ALL_TYPES[i], size, lambda r: 2, salt=i), ALL_TYPES[i])


def test_compiled_with_other_rows_on_each_rank(rank, size):
    if size > 1:
        with pytest.raises(tf.errors.InternalError, match=r"same number of rows .* jit_compile=False"):
            compiled(sdp.allgather)(tf.zeros([rank + 1, 2]))
    assert compiled(sdp.allgather)(tf.zeros([1, 2])).shape == (size, 2)


@MODES
def test_a_scalar_is_one_row(rank, size, mode):
    assert mode(sdp.allgather)(tf.constant(rank * 10)).numpy().tolist() == [r * 10 for r in range(size)]
    assert mode(lambda x: sdp.grouped_allgather([x, [x, x]]))(tf.constant(rank))[1].shape == (2 * size,)


def test_tensors_of_unknown_rank(rank, size):
    """It is known when the op runs: a scalar, a vector, a matrix."""
    function = tf.function(sdp.allgather, input_signature=[tf.TensorSpec(None)])
    for shape in ((), (2,), (1, 3)):
        result = function(tf.fill(shape, float(rank)))
        assert_equal(result, np.concatenate([np.full(shape or (1,), r, np.float32) for r in range(size)]))


def test_a_large_tensor(rank, size):
    result = sdp.allgather(rows_of(tf.float32, rank, 70000 + rank, (7,)))
    assert_equal(result, gathered(tf.float32, size, lambda r: 70000 + r, (7,)))


def test_static_shape():
    @tf.function
    def function(x):
        assert sdp.allgather(x).shape.as_list() == [None, 3]
        return sdp.allgather(x)

    function(tf.zeros((2, 3)))


def test_many_in_flight_in_any_order(rank, size):
    """The ranks' executors get to the ops in another order."""

    @tf.function
    def function(x):
        results = [sdp.allgather(tf.fill([rank + i], x)) for i in range(6)]
        return results[::-1] if rank % 2 else results

    for _ in range(3):
        results = function(tf.constant(rank))
        for i, result in enumerate(results[::-1] if rank % 2 else results):
            assert result.numpy().tolist() == [r for r in range(size) for _ in range(r + i)]


def test_invalid_tensors():
    with pytest.raises(TypeError, match=r"allgather\(\) does not take RaggedTensor"):
        sdp.allgather(tf.ragged.constant([[1.0], [2.0, 3.0]]))
    with pytest.raises(TypeError, match=r"grouped_allgather\(\) takes a list of tensors, but got"):
        sdp.grouped_allgather(tf.zeros((2, 2)))

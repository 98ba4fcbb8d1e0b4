"""alltoall: some rows to each rank."""

import numpy as np
import pytest
import tensorflow as tf
from modes import MODES
from values import ALL_TYPES, assert_equal, of_rank

import tf_smddp as sdp

pytestmark = [pytest.mark.one_rank, pytest.mark.gpu]

# The number of rows that rank r sends to rank t.
SPLITS = {
    "equal": lambda r, t: 2,
    "uneven": lambda r, t: (r * 3 + t * 2) % 5,
    "one rank gets all": lambda r, t: 3 if t == 0 else 0,
    "one rank sends all": lambda r, t: 3 if r == 0 else 0,
    "nothing": lambda r, t: 0,
}


def splits_of(splits, rank, size):
    return [splits(rank, target) for target in range(size)]


def sent(dtype, rank, size, splits, inner=(3,)):
    return of_rank((sum(splits_of(splits, rank, size)), *inner), dtype, rank)


def received(dtype, rank, size, splits, inner=(3,)):
    """The result of rank `rank`: (rows, how many from each)."""
    parts = []
    for source in range(size):
        begin = sum(splits_of(splits, source, size)[:rank])
        parts.append(sent(dtype, source, size, splits, inner)[begin : begin + splits(source, rank)])
    return np.concatenate(parts), np.array([len(part) for part in parts], np.int64)


@pytest.mark.parametrize("splits", SPLITS)
@pytest.mark.parametrize("inner", [(), (3,), (2, 2)], ids=str)
def test_eager(rank, size, splits, inner):
    for dtype in ALL_TYPES:
        output, counts = sdp.alltoall(
            sent(dtype, rank, size, SPLITS[splits], inner), splits_of(SPLITS[splits], rank, size)
        )
        rows, wanted = received(dtype, rank, size, SPLITS[splits], inner)
        assert_equal(output, rows, dtype)
        assert_equal(counts, wanted, dtype)


@pytest.mark.parametrize("splits", SPLITS)
def test_function(rank, size, splits):
    function = tf.function(lambda tensors, counts: [sdp.alltoall(tensor, counts) for tensor in tensors])
    tensors = [tf.constant(sent(dtype, rank, size, SPLITS[splits])) for dtype in ALL_TYPES]
    counts = tf.constant(splits_of(SPLITS[splits], rank, size), tf.int32)
    for _ in range(3):
        for dtype, (output, found) in zip(ALL_TYPES, function(tensors, counts)):
            rows, wanted = received(dtype, rank, size, SPLITS[splits])
            assert_equal(output, rows, dtype)
            assert_equal(found, wanted, dtype)


def test_v1_session(rank, size):
    splits = SPLITS["uneven"]
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        results = [
            sdp.alltoall(tf.constant(sent(dtype, rank, size, splits)), splits_of(splits, rank, size))
            for dtype in ALL_TYPES
        ]
        for _ in range(2):
            for dtype, (output, found) in zip(ALL_TYPES, session.run(results)):
                rows, wanted = received(dtype, rank, size, splits)
                assert_equal(output, rows, dtype)
                assert_equal(found, wanted, dtype)


@MODES
def test_without_splits(rank, size, mode):
    """It returns the rows alone, and splits a matrix of ranks like a transposition."""
    function = mode(sdp.alltoall)
    rows = tf.constant([[rank, target, i] for target in range(size) for i in range(2)])
    wanted = [[source, rank, i] for source in range(size) for i in range(2)]
    assert function(rows).numpy().tolist() == wanted
    assert function(tf.zeros((0, 5))).shape == (0, 5)


def test_compiled_with_constant_splits(rank, size):
    """The same on all ranks: so what comes is known when XLA compiles it."""
    splits = [target + 1 for target in range(size)]

    @tf.function(jit_compile=True)
    def function(rows):
        return sdp.alltoall(rows, splits)

    rows = tf.constant([[rank, target, i] for target in range(size) for i in range(splits[target])])
    output, received_splits = function(rows)
    assert output.numpy().tolist() == [
        [source, rank, i] for source in range(size) for i in range(splits[rank])
    ]
    assert received_splits.numpy().tolist() == [splits[rank]] * size


@pytest.mark.cpu_only("XLA compiles it")
def test_compiled_with_splits_that_xla_cannot_know(size):
    function = tf.function(sdp.alltoall, jit_compile=True)
    with pytest.raises(
        tf.errors.InvalidArgumentError, match=r"splits that are not known .* jit_compile=False"
    ):
        function(tf.zeros([size, 2]), tf.ones([size], tf.int32))


def test_compiled_with_other_splits_on_each_rank(rank, size):
    if size > 1:
        splits = [2 * size if target == rank else 0 for target in range(size)]
        splits[rank] += rank
        with pytest.raises(tf.errors.InternalError, match=r"the same splits.* jit_compile=False"):
            tf.function(lambda x: sdp.alltoall(x, splits), jit_compile=True)(tf.zeros([sum(splits), 2]))
    assert tf.function(sdp.alltoall, jit_compile=True)(tf.zeros([size, 2])).shape == (size, 2)


def test_a_large_tensor(rank, size):
    def splits(source, target):
        return 50000 + 1000 * source + target

    output, _ = sdp.alltoall(sent(tf.float64, rank, size, splits), splits_of(splits, rank, size))
    assert_equal(output, received(tf.float64, rank, size, splits)[0])


def test_static_shapes(size):
    @tf.function
    def function(x):
        output, counts = sdp.alltoall(x, [2] * size)
        assert output.shape.as_list() == [None, 3]
        assert counts.shape.as_list() == [size]
        assert sdp.alltoall(x).shape.as_list() == [None, 3]
        return output

    function(tf.zeros((2 * size, 3)))


def test_splits_that_do_not_fit(size):
    rows = tf.zeros((2 * size, 3))
    with pytest.raises(ValueError, match=rf"one number for each of the {size} ranks"):
        sdp.alltoall(rows, [1] * (size + 1))
    with pytest.raises(ValueError, match=rf"add up to the tensor's {2 * size} rows, but got"):
        sdp.alltoall(rows, [1] * size)
    with pytest.raises(ValueError, match="not negative"):
        sdp.alltoall(rows, [2 * size + 1] + [-1] * (size - 1) if size > 1 else [-2])
    with pytest.raises(TypeError, match="splits of integers"):
        sdp.alltoall(rows, [2.0] * size)
    with pytest.raises(ValueError, match=r"alltoall\(\) needs a tensor with rows"):
        sdp.alltoall(1.0)
    if size > 1:
        with pytest.raises(ValueError, match=rf"a multiple of {size} rows.*but got {size + 1}. Give splits"):
            sdp.alltoall(tf.zeros((size + 1, 3)))


def test_splits_that_turn_out_not_to_fit(rank, size):
    """Known only when the op runs: then it fails on every rank, and the next one is right."""
    function = tf.function(
        sdp.alltoall, input_signature=[tf.TensorSpec([None]), tf.TensorSpec([None], tf.int32)]
    )
    wrong = [1] * size if rank == 0 else [2] * size
    with pytest.raises((tf.errors.InvalidArgumentError, tf.errors.InternalError), match="splits"):
        function(tf.zeros([2 * size]), tf.constant(wrong))
    output, _ = function(tf.fill([2 * size], float(rank)), tf.constant([2] * size))
    assert output.numpy().tolist() == [float(source) for source in range(size) for _ in range(2)]


def test_splits_of_which_there_turn_out_to_be_none(rank, size):
    """That does not mean an even split here: rank 0's step fails, and so the others'."""

    @tf.function(input_signature=[tf.TensorSpec([None]), tf.TensorSpec([None], tf.int32)])
    def function(x, counts):
        total = sdp.allreduce(tf.shape(x)[0], 0, 1, op=sdp.ReduceOp.SUM)
        with tf.control_dependencies([total]):
            return sdp.alltoall(x, tf.identity(counts))[0]

    with pytest.raises((tf.errors.InvalidArgumentError, tf.errors.InternalError), match=r"splits|nsureShape"):
        function(tf.zeros([size]), tf.constant([] if rank == 0 else [1] * size, tf.int32))
    assert function(tf.fill([size], float(rank)), [1] * size).numpy().tolist() == [*range(size)]

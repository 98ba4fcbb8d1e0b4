"""Bad arguments: an error that names the value, on this rank alone and without a trace on the others."""

import numpy as np
import pytest
import tensorflow as tf
from modes import ALL_MODES
from values import sum_of_ranks

import smdistributed.dataparallel.tensorflow
import tf_smddp as sdp

pytestmark = pytest.mark.one_rank

SUM = sdp.ReduceOp.SUM


@pytest.mark.parametrize(("index", "count"), [(-1, 1), (1, 1), (5, 3), (0, 0), (0, -2)], ids=str)
def test_position_out_of_range(index, count):
    with pytest.raises(ValueError, match=f"param_index={index}, num_params={count}"):
        sdp.allreduce(1.0, index, count)


@pytest.mark.parametrize(("index", "count"), [("a", 1), (0, None), (0.0, 1)], ids=str)
def test_position_of_a_wrong_type(index, count):
    with pytest.raises(TypeError, match=f"param_index={index!r}, num_params={count!r}"):
        sdp.allreduce(1.0, index, count)


def test_position_may_be_a_numpy_integer(rank, size):
    assert float(sdp.allreduce(rank + 1.0, np.int64(0), np.int32(1), op=SUM)) == sum_of_ranks(size)


def test_missing_arguments():
    with pytest.raises(TypeError, match="`tensor` or its other name `grad`"):
        sdp.allreduce(param_index=0, num_params=1)
    with pytest.raises(TypeError, match="`tensor` or its other name `grad`"):
        sdp.allreduce(1.0, 0, 1, grad=1.0)


def test_other_ways_to_call(rank, size):
    total = sum_of_ranks(size)
    x = tf.constant(rank + 1.0)
    assert float(sdp.allreduce(x)) == total / size
    assert float(sdp.allreduce(x, op=SUM)) == total
    assert float(sdp.allreduce(grad=x, param_index=0, num_params=1, op=SUM)) == total
    assert float(sdp.allreduce(x, 0, 1, sdp.Compression.none, SUM, "name")) == total
    assert float(sdp.allreduce(x, 0, 1, op=None)) == total / size
    assert float(sdp.allreduce(x, param_index=0, num_params=1)) == total / size
    assert sdp.allreduce([rank + 1, 1], 0, 1, op=SUM).numpy().tolist() == [total, size]
    assert float(sdp.allreduce(tf.Variable(x), 0, 1, op=SUM)) == total
    slices = tf.IndexedSlices(tf.ones((1, 2)), tf.constant([rank % 2]), tf.constant([2, 2]))
    assert tf.reduce_sum(sdp.allreduce(slices, 0, 1, op=SUM)).numpy() == 2 * size


@pytest.mark.parametrize("name", ["with:0 strange/chars!", "_begins_so", "/slash", "ok"])
def test_any_name_will_do(rank, size, name):
    for mode in (lambda f: f, tf.function):
        assert float(mode(lambda: sdp.allreduce(rank + 1.0, 0, 1, op=SUM, name=name))()) == sum_of_ranks(size)
        assert float(mode(lambda: sdp.broadcast(rank + 1.0, 0, name=name))()) == 1.0
        mode(lambda: sdp.barrier(name=name))()


@pytest.mark.parametrize("op", ["sum", 1, sum, sdp.Compression.none], ids=repr)
def test_bad_operation(op):
    with pytest.raises(TypeError, match=r"op must be one of ReduceOp\.AVERAGE, .* or None, but is"):
        sdp.allreduce(1.0, 0, 1, op=op)


@pytest.mark.parametrize(
    "collective",
    [
        lambda x: sdp.allreduce(x, 0, 1),
        lambda x: sdp.grouped_allreduce([x]),
        lambda x: sdp.broadcast(x, 0),
        sdp.allgather,
        lambda x: sdp.grouped_allgather([x]),
        sdp.reducescatter,
        lambda x: sdp.grouped_reducescatter([x]),
        sdp.alltoall,
    ],
)
def test_unsupported_type(collective):
    with pytest.raises(TypeError, match="does not take a tensor of type string, only: float16"):
        collective(tf.constant(["text"]))


def no_tensors():
    """Values that no tensor can be made of, and how an error shows them."""
    return [
        (object(), "<object object at .*> of type object"),
        ({"loss": 1.0}, "{'loss': 1.0} of type dict"),
        ([[1.0], [2.0, 3.0]], r"\[\[1.0\], \[2.0, 3.0\]\] of type list"),
        ([1, "two"], r"\[1, 'two'\] of type list"),
        ([*range(100), None], r"\[0, 1, 2, 3, 4, 5, \.\.\.\] of type list"),
    ]


@ALL_MODES
@pytest.mark.parametrize(
    ("name", "collective"),
    [
        ("allreduce", lambda x: sdp.allreduce(x, 0, 1)),
        ("grouped_allreduce", lambda x: sdp.grouped_allreduce([1.0, x])),
        ("broadcast", lambda x: sdp.broadcast(x, 0)),
        ("allgather", sdp.allgather),
        ("grouped_allgather", lambda x: sdp.grouped_allgather([1.0, x])),
        ("reducescatter", sdp.reducescatter),
        ("grouped_reducescatter", lambda x: sdp.grouped_reducescatter([[1.0], x])),
        ("alltoall", sdp.alltoall),
        ("alltoall", lambda x: sdp.alltoall([1.0], splits=x)),
        ("overlap", sdp.overlap),
    ],
)
def test_no_tensor(mode, name, collective):
    for value, shown in no_tensors():
        with pytest.raises(TypeError, match=rf"tf_smddp\.{name}\(\) takes .*, but got {shown}\. Make "):
            mode(lambda value=value: collective(value))()


@ALL_MODES
def test_no_tensor_in_a_structure(mode):
    for value in (object(), None, [[1.0], object()]):
        with pytest.raises(TypeError, match=r"tf_smddp\.oob_allreduce\(\) takes a tensor.* but got "):
            mode(lambda value=value: sdp.oob_allreduce({"loss": 1.0, "other": value}))()


def test_no_tensor_leaves_no_trace(rank, size):
    if rank == 0:
        with pytest.raises(TypeError):
            sdp.allreduce(object(), 0, 1)
    assert float(sdp.allreduce(rank + 1.0, 0, 1, op=SUM)) == sum_of_ranks(size)


@pytest.mark.parametrize("op", [SUM, sdp.ReduceOp.AVERAGE, sdp.ReduceOp.PRODUCT])
def test_bool_has_min_and_max_only(op):
    with pytest.raises(ValueError, match=f"ReduceOp.{op.name} is not defined for bool"):
        sdp.allreduce(True, 0, 1, op=op)


def test_sparse_and_ragged():
    with pytest.raises(TypeError, match="RaggedTensor"):
        sdp.allreduce(tf.ragged.constant([[1.0], [2.0, 3.0]]), 0, 1)
    with pytest.raises(TypeError, match="SparseTensor"):
        sdp.allreduce(tf.SparseTensor([[0]], [1.0], [2]), 0, 1)
    with pytest.raises(ValueError, match="no dense_shape"):
        sdp.allreduce(tf.IndexedSlices(tf.ones((1, 2)), tf.constant([0])), 0, 1)


@pytest.mark.parametrize(
    "call", [sdp.broadcast, lambda x, root: sdp.broadcast_variables([tf.Variable(x)], root)]
)
def test_root_out_of_range(size, call):
    for root in (-1, size):
        with pytest.raises(ValueError, match=rf"root_rank < size\(\) = {size}, but got root_rank={root}"):
            call(1.0, root)
    with pytest.raises(TypeError, match="root_rank as a Python integer, but got 'zero'"):
        call(1.0, "zero")


def test_init_twice(rank, size):
    """As SMDDP does. Horovod's layer does nothing (test_horovod.py)."""
    for init in (sdp.init, smdistributed.dataparallel.tensorflow.init):
        with pytest.raises(RuntimeError, match=r"^init\(\) called more than once: "):
            init()
    assert (sdp.rank(), sdp.size()) == (rank, size)
    assert float(sdp.allreduce(1.0, op=sdp.ReduceOp.SUM)) == size


def test_who_we_are(rank, size):
    assert sdp.is_initialized()
    assert 0 <= rank < size
    assert 0 <= sdp.local_rank() < sdp.local_size() <= size
    if sdp.local_size() == size:
        assert sdp.local_rank() == rank

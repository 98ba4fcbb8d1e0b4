"""broadcast_object and allgather_object."""

import threading

import numpy as np
import pytest
import tensorflow as tf

import tf_smddp as sdp

pytestmark = pytest.mark.one_rank

# Objects that can be pickled; some need cloudpickle.
OBJECTS = [None, b"", "", [], {"a": [1, 2.5, (3,)]}, "ü" * 1000, 1 << 200, np.arange(6).reshape(2, 3)]


class NotForPickling:
    """Can be pickled; but not unpickled on rank `rank`, nor pickled where `refuse` is set."""

    def __init__(self, rank=None, refuse=False):
        self.rank, self.refuse = rank, refuse

    def __reduce__(self):
        if self.refuse:
            raise OSError("I'd rather not")
        return _fail_on, (self.rank,)


def _fail_on(rank):
    if sdp.rank() == rank:
        raise OSError("not here")
    return "fine"


def same(found, wanted):
    return type(found) is type(wanted) and np.array_equal(found, wanted)


@pytest.mark.parametrize("obj", OBJECTS, ids=lambda obj: type(obj).__name__)
def test_broadcast(rank, size, obj):
    for root in range(size):
        found = sdp.broadcast_object(obj if rank == root else threading.Lock(), root)
        assert same(found, obj)
        assert rank != root or found is obj


def test_each_rank_sends_something_else(rank, size):
    found = sdp.allgather_object([OBJECTS[rank]] * rank, name="mine")
    assert found == [[OBJECTS[each]] * each for each in range(size)]


def test_functions(rank, size):
    functions = sdp.allgather_object(lambda x: x + rank)
    assert [function(1) for function in functions] == [1 + each for each in range(size)]


def test_large_objects(rank, size):
    block = np.arange(100 << 20, dtype=np.uint8) if rank == size - 1 else None
    found = sdp.broadcast_object(block, size - 1)
    assert found.shape == (100 << 20,)
    assert found[-1] == 255
    assert int(found[:512].sum()) == 2 * sum(range(256))
    blocks = sdp.allgather_object(np.full([rank * (4 << 20)], rank, np.uint8))
    assert [len(each) for each in blocks] == [each * (4 << 20) for each in range(size)]
    assert all((each == i).all() for i, each in enumerate(blocks))


@pytest.mark.parametrize("bad", [threading.Lock(), NotForPickling(refuse=True)], ids=["lock", "refuses"])
def test_what_cannot_be_pickled_fails_on_all_ranks(rank, size, bad):
    kind = type(bad).__qualname__
    for culprit in range(size):
        text = rf"rank {culprit} could not pickle its object of type \S*{kind}: "
        with pytest.raises(TypeError, match=text) as caught:
            sdp.allgather_object(bad if rank == culprit else rank)
        assert (caught.value.__cause__ is not None) == (rank == culprit)
        with pytest.raises(TypeError, match=text):
            sdp.broadcast_object(bad, culprit)
        assert sdp.allgather_object(rank) == list(range(size))


def test_what_cannot_be_unpickled_fails_on_all_ranks(rank, size):
    for culprit in range(size):
        text = rf"rank {culprit} could not unpickle the object of rank 0: OSError: not here"
        with pytest.raises(RuntimeError, match=text):
            sdp.allgather_object(NotForPickling(culprit))
        root = (culprit + 1) % size
        if root != culprit:
            with pytest.raises(RuntimeError, match=rf"rank {culprit} could not unpickle"):
                sdp.broadcast_object(NotForPickling(culprit), root)
        assert sdp.allgather_object(rank) == list(range(size))


def test_several_fail(size):
    with pytest.raises(TypeError, match="rank 0 could not pickle"):
        sdp.allgather_object(threading.Lock())
    assert sdp.broadcast_object(size) == size


@pytest.mark.min_ranks(2)
def test_ranks_that_call_different_things(rank, size):
    with pytest.raises(
        RuntimeError, match=r"Rank 0 is in allgather of objects, rank 1 in broadcast.* rank 0"
    ):
        sdp.broadcast_object(1, 0) if rank else sdp.allgather_object(1)
    with pytest.raises(RuntimeError, match=r"Rank 0 is in .* root rank 0, rank 1 in .* root rank 1"):
        sdp.broadcast_object(1, min(rank, 1))
    assert sdp.allgather_object(rank) == list(range(size))


def test_it_does_not_shift_the_gradients(rank, size):
    """A function's groups, and objects that a thread exchanges on its own meanwhile."""
    done = []

    def objects():
        done.append([sdp.allgather_object((i, rank)) for i in range(10)])

    @tf.function
    def step(x):
        return sum(sdp.grouped_allreduce([x, 2.0 * x], op=sdp.ReduceOp.SUM)) + sdp.allreduce(x, 0, 1)

    thread = threading.Thread(target=objects)
    thread.start()
    for _ in range(50):
        assert float(step(tf.constant(1.0))) == 3.0 * size + 1.0
    thread.join()
    assert done == [[[(i, each) for each in range(size)] for i in range(10)]]


def test_in_a_v1_script(rank, size):
    """Beside its graph, and nothing is added to that."""
    with tf.Graph().as_default() as graph, tf.compat.v1.Session() as session:
        total = sdp.allreduce(tf.constant(1.0), 0, 1, op=sdp.ReduceOp.SUM)
        before = len(graph.get_operations())
        assert sdp.broadcast_object([rank], size - 1) == [size - 1]
        assert sdp.allgather_object(rank) == list(range(size))
        assert session.run(total) == size
        assert len(graph.get_operations()) == before


def test_not_while_a_function_is_traced(size):
    for call in (lambda: sdp.broadcast_object(1), lambda: sdp.allgather_object(1)):
        with pytest.raises(RuntimeError, match=r"was called while a function is traced .*Call it outside"):
            tf.function(call)()
        with tf.Graph().as_default(), pytest.raises(RuntimeError, match="while a function is traced"):
            tf.function(call)()
        with pytest.raises(RuntimeError, match=r"a function that tf\.data runs"):
            tf.data.Dataset.range(1).map(lambda _, call=call: call())


def test_process_sets(rank, size):
    last = sdp.add_process_set([size - 1])
    pair = sdp.add_process_set(sorted({0, size - 1}))
    if pair.included():
        assert sdp.broadcast_object(rank, size - 1, process_set=pair) == size - 1
        assert sdp.allgather_object(rank, process_set=pair) == pair.ranks
    if last.included():
        assert sdp.allgather_object("x", process_set=last) == ["x"]
    else:
        with pytest.raises(ValueError, match=r"allgather_object\(\) .*rank .* not in the process set"):
            sdp.allgather_object("x", process_set=last)
    sdp.remove_process_set(pair)
    sdp.remove_process_set(last)


def test_bad_roots(size):
    with pytest.raises(ValueError, match=rf"broadcast_object\(\) needs 0 <= root_rank .*root_rank={size}"):
        sdp.broadcast_object(1, size)
    with pytest.raises(TypeError, match="needs root_rank as a Python integer, but got 'first'"):
        sdp.broadcast_object(1, "first")

"""Process sets: collectives among some ranks, with sequences of their own."""

import pytest
import tensorflow as tf
from modes import MODES
from values import sum_of_ranks

import tf_smddp as sdp

pytestmark = [pytest.mark.one_rank, pytest.mark.gpu]

SUM = sdp.ReduceOp.SUM


def memberships(size):
    """Some sets for this size: all, each alone, all but one."""
    sets = [list(range(size)), *([rank] for rank in range(size))]
    if size > 2:
        sets += [[rank for rank in range(size) if rank != absent] for absent in range(size)]
    return sets


@pytest.fixture
def sets(size):
    added = [sdp.add_process_set(ranks) for ranks in memberships(size)]
    yield added
    for process_set in added:
        assert sdp.remove_process_set(process_set) is True


def everything(x, process_set):
    """Each collective once; x is [rank + 1]."""
    count = process_set.size()
    return [
        sdp.allreduce(x, 0, 1, op=SUM, process_set=process_set),
        *sdp.grouped_allreduce([x, 2.0 * x], process_set=process_set, op=SUM),
        sdp.allgather(x, process_set=process_set),
        *sdp.grouped_allgather([x, x], process_set=process_set),
        sdp.reducescatter(tf.repeat(x, count), op=SUM, process_set=process_set),
        *sdp.grouped_reducescatter([tf.repeat(x, count)], op=SUM, process_set=process_set),
        sdp.alltoall(tf.repeat(x, count), process_set=process_set),
        sdp.alltoall(tf.repeat(x, count), [1] * count, process_set=process_set)[0],
        sdp.broadcast(x, process_set.ranks[-1], process_set=process_set),
    ]


def check(results, ranks):
    """`results` is what `everything` gave, as lists."""
    total, each = float(sum(rank + 1 for rank in ranks)), [rank + 1.0 for rank in ranks]
    wanted = [
        [total],
        [total],
        [2 * total],
        each,
        each,
        each,
        [total],
        [total],
        each,
        each,
        [ranks[-1] + 1.0],
    ]
    assert [result.tolist() for result in results] == wanted


@MODES
def test_every_collective(rank, sets, mode):
    x = tf.constant([rank + 1.0])
    for process_set in sets:
        if process_set.included():
            function = mode(lambda x, process_set=process_set: everything(x, process_set))
            for _ in range(3):
                check([result.numpy() for result in function(x)], process_set.ranks)
                sdp.barrier(process_set=process_set)


def test_in_v1_sessions(rank, sets):
    for process_set in sets:
        if process_set.included():
            with tf.Graph().as_default(), tf.compat.v1.Session() as session:
                results = everything(tf.constant([rank + 1.0]), process_set)
                for _ in range(2):
                    check(session.run(results), process_set.ranks)
                session.run(sdp.barrier(process_set=process_set))


def test_members_do_more_than_the_others(rank, size, sets):
    """The sets' collectives shift nothing in the job's own order, nor in each other's."""
    function = tf.function(lambda x, process_set: sdp.allreduce(x, 0, 1, op=SUM, process_set=process_set))
    for round_number in range(5):
        for process_set in sets:
            if process_set.included():
                for _ in range(round_number):
                    found = function(tf.constant(rank + 1.0), process_set)
                    assert float(found) == sum(r + 1 for r in process_set.ranks)
        assert float(sdp.allreduce(rank + 1.0, 0, 1, op=SUM)) == sum_of_ranks(size)


@pytest.mark.one_tensorflow
@MODES
def test_gradients(rank, sets, mode):
    for process_set in sets:
        if not process_set.included():
            continue

        @mode
        def gradient(x, process_set=process_set):
            with tf.GradientTape() as tape:
                tape.watch(x)
                y = sum(
                    (rank + 1.0) * tf.reduce_sum(output)
                    for output in (
                        sdp.allreduce(x, 0, 1, process_set=process_set),
                        sdp.allgather(x, process_set=process_set),
                        sdp.broadcast(x, process_set.ranks[0], process_set=process_set),
                        sdp.alltoall(x, process_set=process_set),
                    )
                )
            return tape.gradient(y, x)

        ranks = process_set.ranks
        total = sum(r + 1.0 for r in ranks)
        broadcast = total if rank == ranks[0] else 0.0
        wanted = [total / len(ranks) + total + broadcast + r + 1.0 for r in ranks]
        assert gradient(tf.ones([len(ranks)])).numpy().tolist() == pytest.approx(wanted)


def test_a_set_of_one_variable(rank, sets):
    for process_set in sets:
        if process_set.included():
            variable = tf.Variable([float(rank)])
            sdp.broadcast_variables([variable], process_set.ranks[-1], process_set=process_set)
            assert variable.numpy().tolist() == [float(process_set.ranks[-1])]


def test_membership_of_a_set(rank, size, sets):
    for process_set, ranks in zip(sets, memberships(size)):
        assert process_set.ranks == ranks
        assert process_set.size() == len(ranks)
        assert process_set.included() == (rank in ranks)
        assert process_set.process_set_id > 0
        if rank in ranks:
            assert process_set.rank() == ranks.index(rank)
        else:
            with pytest.raises(ValueError, match=rf"rank {rank}, which is not in the process set"):
                process_set.rank()
    assert len({process_set.process_set_id for process_set in sets}) == len(sets)


def test_the_global_set(rank, size):
    assert sdp.global_process_set.ranks == list(range(size))
    assert sdp.global_process_set.process_set_id == 0
    assert sdp.global_process_set.included()
    assert (sdp.global_process_set.rank(), sdp.global_process_set.size()) == (rank, size)
    found = sdp.allreduce(rank + 1.0, 0, 1, op=SUM, process_set=sdp.global_process_set)
    assert float(found) == sum_of_ranks(size)
    with pytest.raises(ValueError, match="it is the job itself"):
        sdp.remove_process_set(sdp.global_process_set)


def test_ranks_in_any_order_and_objects_made_before(size):
    described = sdp.ProcessSet(range(size)[::-1])
    assert described.process_set_id is None
    assert described.ranks == list(range(size))
    assert sdp.add_process_set(described) is described
    assert float(sdp.allreduce(1.0, 0, 1, op=SUM, process_set=described)) == size
    with pytest.raises(ValueError, match="which is added already"):
        sdp.add_process_set(described)
    assert sdp.remove_process_set(described) is True
    assert sdp.remove_process_set(described) is False


def test_numbers_are_given_again(size):
    """More sets, one after the other, than there is room for at once."""
    for _ in range(100):
        process_set = sdp.add_process_set([size - 1])
        if process_set.included():
            assert float(sdp.allreduce(3.0, 0, 1, process_set=process_set)) == 3.0
        sdp.remove_process_set(process_set)


@pytest.mark.parametrize(
    ("ranks", "error", "text"),
    [
        ([], ValueError, "at least one rank"),
        ([0, 0], ValueError, "each rank once"),
        (["zero"], TypeError, "ranks as Python integers"),
        (3, TypeError, "ranks as Python integers"),
        ([1000], ValueError, r"ranks from 0 to size\(\) - 1"),
        ([-1], ValueError, r"ranks from 0 to size\(\) - 1"),
    ],
    ids=str,
)
def test_bad_sets(ranks, error, text):
    with pytest.raises(error, match=text):
        sdp.add_process_set(ranks)


def test_ranks_that_disagree(rank, size):
    """All get an error that shows both sides, and the next set is right."""
    if size > 1:
        with pytest.raises(RuntimeError, match=r"(?s)rank 0.*rank \d"):
            sdp.add_process_set([min(rank, 1)])
    together = sdp.add_process_set(range(size))
    assert float(sdp.allreduce(rank + 1.0, 0, 1, op=SUM, process_set=together)) == sum_of_ranks(size)
    assert sdp.remove_process_set(together)


def test_a_set_that_cannot_be_used(rank, size):
    with pytest.raises(
        TypeError, match=r"allreduce\(\) takes a ProcessSet or None as process_set, but got \[0\]"
    ):
        sdp.allreduce(1.0, 0, 1, process_set=[0])
    with pytest.raises(ValueError, match=r"which is not added. Call add_process_set\(\)"):
        sdp.barrier(process_set=sdp.ProcessSet([0]))
    with pytest.raises(TypeError, match="takes a ProcessSet, but got"):
        sdp.remove_process_set([0])
    first = sdp.add_process_set([0])
    if rank != 0:
        for call in (
            lambda: sdp.allreduce(1.0, 0, 1, process_set=first),
            lambda: sdp.grouped_allreduce([1.0], process_set=first),
            lambda: sdp.allgather(1.0, process_set=first),
            lambda: sdp.grouped_allgather([1.0], process_set=first),
            lambda: sdp.reducescatter([1.0], process_set=first),
            lambda: sdp.grouped_reducescatter([[1.0]], process_set=first),
            lambda: sdp.alltoall([1.0], process_set=first),
            lambda: sdp.broadcast(1.0, 0, process_set=first),
            lambda: sdp.broadcast_variables([], 0, process_set=first),
            lambda: sdp.barrier(process_set=first),
        ):
            with pytest.raises(ValueError, match=rf"rank {rank}, which is not in the process set \[0\]"):
                call()
    elif size > 1:
        with pytest.raises(
            ValueError, match=r"root_rank that is in the process set \[0\], but got root_rank=1"
        ):
            sdp.broadcast(1.0, 1, process_set=first)
    sdp.remove_process_set(first)


def test_a_removed_set_is_refused_by_its_functions(size):
    process_set = sdp.add_process_set([*range(size)])
    function = tf.function(lambda: sdp.allreduce(1.0, 0, 1, op=SUM, process_set=process_set))
    assert float(function()) == size
    sdp.remove_process_set(process_set)
    with pytest.raises(tf.errors.OpError, match="process set"):
        function()
    assert float(sdp.allreduce(1.0, 0, 1, op=SUM)) == size

"""stats(): the figures of known collectives."""

import time

import pytest
import tensorflow as tf

import tf_smddp as sdp

pytestmark = pytest.mark.one_rank

KINDS = {"allreduce", "broadcast", "barrier", "allgather", "reducescatter", "alltoall"}
OF_A_KIND = {
    "calls",
    "errors",
    "bytes",
    "staged_bytes",
    "nccl_bytes",
    "in_place_bytes",
    "small_calls",
    "waiting_seconds",
    "moving_seconds",
}
OF_A_RANK = {
    "rank",
    "size",
    "arena_bytes",
    "arena_used_bytes",
    "arena_peak_bytes",
    "arena_refused_calls",
    "collectives",
    "process_sets",
}


def world(figures):
    """The figures of all ranks' process set."""
    return next(each for each in figures["process_sets"] if each["id"] == 0)


def test_keys_are_those_of_the_documentation(rank, size):
    figures = sdp.stats()
    assert set(figures) == OF_A_RANK
    assert (figures["rank"], figures["size"]) == (rank, size)
    assert set(figures["collectives"]) == KINDS
    assert set(world(figures)) == {
        "id",
        "ranks",
        "batches",
        "batch_bytes",
        "deferred",
        "failures",
        "steps",
        "last_steps",
        "step_seconds",
        "blocked_seconds",
        "collectives",
    }
    assert world(figures)["ranks"] == list(range(size))
    for kinds in (figures["collectives"], world(figures)["collectives"]):
        assert set(kinds) == KINDS
        assert all(set(of_a_kind) == OF_A_KIND for of_a_kind in kinds.values())
    assert (figures["arena_bytes"] > 0) == (size > 1)


@pytest.mark.min_ranks(2)
def test_the_last_to_arrive_in_a_step(rank, size):
    sdp.stats(reset=True)
    for step in range(5):
        sdp.barrier()
        if rank == (0 if step == 2 else 1):
            time.sleep(0.4)
        sdp.grouped_allreduce([tf.ones([10]), tf.ones([1000, 10])])
    figures = [world(each) for each in sdp.stats(all_ranks=True)]
    assert [each["steps"] for each in figures] == [5] * size
    assert [each["last_steps"] for each in figures] == [1, 4, *[0] * (size - 2)]


@pytest.mark.cpu_only("it counts which ways tensors of the CPU take")
def test_known_collectives_are_counted(size):
    sdp.stats(reset=True)
    for _ in range(3):
        sdp.allreduce(tf.ones([1]), 0, 1)
    sdp.allreduce(tf.ones([1000, 1000]), 0, 1)
    sdp.broadcast(tf.ones([10], tf.float64), root_rank=0)
    sdp.barrier()
    figures = sdp.stats()
    allreduce = figures["collectives"]["allreduce"]
    assert allreduce["calls"] == 4
    assert allreduce["bytes"] == 3 * 4 + 4_000_000
    assert allreduce["errors"] == 0
    assert allreduce["staged_bytes"] == 0
    assert allreduce["small_calls"] == (3 if size > 1 else 0)
    assert figures["collectives"]["broadcast"]["bytes"] == 80
    assert figures["collectives"]["barrier"]["calls"] == 1
    assert figures["collectives"]["alltoall"]["calls"] == 0
    assert world(figures)["collectives"]["allreduce"]["calls"] == 4
    assert world(figures)["batch_bytes"] == (4_000_000 if size > 1 else 0)
    # A rank that is not scheduled leaves all of the moving to the others.
    moving = tf.constant(allreduce["moving_seconds"], tf.float64)
    assert sdp.allreduce(moving, 0, 1, op=sdp.ReduceOp.SUM) > 0


def test_inside_a_function(size):
    @tf.function
    def step(x):
        return sdp.allreduce(x, 0, 1)

    sdp.stats(reset=True)
    for _ in range(5):
        step(tf.ones([300]))
    assert sdp.stats()["collectives"]["allreduce"]["calls"] == 5
    assert sdp.stats()["collectives"]["allreduce"]["bytes"] == 5 * 1200


def test_reset(size):
    sdp.barrier()
    assert sdp.stats(reset=True)["collectives"]["barrier"]["calls"] >= 1
    figures = sdp.stats()["collectives"]["barrier"]
    assert figures["calls"] == 0
    assert figures["waiting_seconds"] == 0


@pytest.mark.max_ranks(1)
def test_a_job_of_one_rank_has_no_waiting_time():
    sdp.barrier()
    assert sdp.stats()["collectives"]["barrier"]["waiting_seconds"] == 0


@pytest.mark.min_ranks(2)
def test_the_waiting_rank_has_waiting_time(rank):
    waits = []
    for _ in range(3):  # since a rank may itself come late to a barrier
        sdp.barrier()
        sdp.stats(reset=True)
        if rank == 0:
            time.sleep(0.3)
        begin = time.monotonic()
        sdp.barrier()
        seconds = time.monotonic() - begin
        waits.append(sdp.stats()["collectives"]["barrier"]["waiting_seconds"])
        assert waits[-1] < seconds + 1e-3
    if rank != 0:
        assert max(waits) > 0.2


def test_a_step_that_fails_is_an_error(rank, size):
    sdp.stats(reset=True)
    sdp.barrier()  # the others may fail the step before this rank comes to it
    if size == 1:
        sdp.allreduce(tf.ones([2]), 0, 1)
    else:
        with pytest.raises(tf.errors.InternalError, match="different collectives"):
            sdp.allreduce(tf.ones([2 + rank]), 0, 1)
    sdp.allreduce(tf.ones([2]), 0, 1)
    figures = sdp.stats()
    allreduce = figures["collectives"]["allreduce"]
    assert allreduce["calls"] == (1 if size > 1 else 2)
    assert allreduce["bytes"] == 8 * allreduce["calls"]
    assert world(figures)["failures"] == (1 if size > 1 else 0)
    # A rank that came when the step had failed already did not get as far as its allreduce.
    assert allreduce["errors"] <= world(figures)["failures"]
    everywhere = sdp.allreduce(tf.constant(allreduce["errors"], tf.int64), 0, 1, op=sdp.ReduceOp.SUM)
    assert everywhere.numpy() >= (2 if size > 1 else 0)


def test_a_process_set_has_figures_of_its_own(rank, size):
    sdp.stats(reset=True)
    ends = sdp.add_process_set({0, size - 1})
    if ends.included():
        sdp.allgather(tf.ones([2, 3]), process_set=ends)
        sdp.alltoall(tf.ones([2 * ends.size()], tf.int8), process_set=ends)
    figures = sdp.stats()
    found = [each for each in figures["process_sets"] if each["id"] == ends.process_set_id]
    assert len(found) == ends.included()
    for kind, size_in_bytes in (("allgather", 24), ("alltoall", 2 * ends.size())):
        for kinds in (figures["collectives"], *(each["collectives"] for each in found)):
            assert kinds[kind]["calls"] == ends.included()
            assert kinds[kind]["bytes"] == size_in_bytes * ends.included()
        assert world(figures)["collectives"][kind]["calls"] == 0
    if found:
        assert found[0]["ranks"] == ends.ranks
    sdp.remove_process_set(ends)
    figures = sdp.stats()
    assert [each["id"] for each in figures["process_sets"]] == [0]
    assert figures["collectives"]["allgather"]["calls"] == ends.included()


def test_of_all_ranks(rank, size):
    sdp.allreduce(tf.ones([10]))
    figures = sdp.stats(all_ranks=True)
    assert [each["rank"] for each in figures] == list(range(size))
    assert figures[rank].keys() == sdp.stats().keys()
    assert all(each["collectives"]["allreduce"]["calls"] >= 1 for each in figures)

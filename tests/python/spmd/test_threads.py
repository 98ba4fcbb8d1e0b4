"""Several Python threads, each with a process set of its own, since threads have no common order."""

import threading

import pytest
import tensorflow as tf
from modes import MODES
from values import sum_of_ranks

import tf_smddp as sdp

pytestmark = pytest.mark.one_rank

SUM = sdp.ReduceOp.SUM
THREADS = 4


@pytest.fixture
def sets(size):
    added = [sdp.add_process_set(range(size)) for _ in range(THREADS)]
    yield added
    for process_set in added:
        sdp.remove_process_set(process_set)


def in_threads(work, rank):
    """Runs work(0) to work(THREADS - 1) at once, and starts them in another order on each rank."""
    failures = []

    def run(number):
        try:
            work(number)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=run, args=((i + rank) % THREADS,)) for i in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]


@MODES
def test_each_has_a_process_set(rank, size, sets, mode):
    """The threads overlap in another way on each rank, and do different things."""

    def work(number):
        process_set = sets[number]
        reduce = mode(lambda x: sdp.allreduce(x, 0, 1, op=SUM, process_set=process_set))
        gather = mode(lambda x: sdp.allgather(x, process_set=process_set))
        for i in range(20 + 5 * number):
            value = 100.0 * number + i
            assert float(reduce(tf.constant(value + rank))) == value * size + sum(range(size))
            if i % (number + 1) == 0:
                assert gather(tf.constant([rank, number])).numpy().tolist() == [
                    x for r in range(size) for x in (r, number)
                ]
                sdp.barrier(process_set=process_set)

    in_threads(work, rank)


def test_one_function_for_all_threads(rank, size, sets):
    """Traced once for each process set."""
    function = tf.function(lambda x, process_set: sdp.allreduce(x, 0, 1, op=SUM, process_set=process_set))

    def work(number):
        for i in range(20):
            found = function(tf.constant(rank + 1.0 + number), sets[number])
            assert float(found) == sum_of_ranks(size) + number * size, i

    in_threads(work, rank)


@pytest.mark.cpu_only("TensorFlow hands the error to other threads; tests/python/gpu has this test")
def test_a_failure_in_one_thread_is_none_in_the_others(rank, size, sets):
    """Thread 0's shapes differ between the ranks every time; the other threads go on."""

    def work(number):
        for i in range(10):
            if number == 0 and size > 1:
                with pytest.raises(tf.errors.InternalError, match="the ranks run different collectives"):
                    sdp.allreduce(tf.zeros([rank + 1]), 0, 1, process_set=sets[0])
            found = sdp.allreduce(float(i + rank), 0, 1, op=SUM, process_set=sets[number])
            assert float(found) == i * size + sum(range(size))

    in_threads(work, rank)

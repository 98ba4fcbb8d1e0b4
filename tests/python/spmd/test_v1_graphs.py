"""Graphs without a program order: collectives of several sessions at once pair by name."""

import threading

import numpy as np
import pytest
import tensorflow as tf

import tf_smddp as sdp

pytestmark = pytest.mark.one_rank

SUM = sdp.ReduceOp.SUM


def in_threads(*functions):
    """Runs them at once; returns their results or exceptions."""
    results = [None] * len(functions)

    def run(i):
        try:
            results[i] = functions[i]()
        except Exception as error:
            results[i] = error

    threads = [threading.Thread(target=run, args=(i,)) for i in range(len(functions))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def graph_with(rank, number, name):
    """Returns a function that, in a session of its own, reduces 10 * number + rank several times."""
    graph = tf.Graph()
    with graph.as_default():
        x = tf.constant([10.0 * number + rank])
        collectives = [
            sdp.allreduce(x, 0, 1, op=SUM, name=name and f"{name}/sum"),
            sdp.allgather(x, name=name and f"{name}/gather"),
            sdp.reducescatter([x[0]] * sdp.size(), op=SUM, name=name and f"{name}/scatter"),
            sdp.broadcast(x, 0, name=name and f"{name}/root"),
        ]
    session = tf.compat.v1.Session(graph=graph)

    def run():
        for _ in range(20):
            found = [value.tolist() for value in session.run(collectives)]
        session.close()
        return found

    return run


def wanted(number, size):
    total = 10.0 * number * size + sum(range(size))
    return [[total], [10.0 * number + r for r in range(size)], [total], [10.0 * number]]


def test_two_sessions_at_once_with_names(rank, size):
    """They overlap in another way on each rank."""
    runs = [graph_with(rank, number, f"graph{number}") for number in range(3)]
    results = in_threads(*(runs if rank % 2 else reversed(runs)))
    if rank % 2 == 0:
        results.reverse()
    assert results == [wanted(number, size) for number in range(3)]


def test_one_session_from_several_threads(rank, size):
    """Each thread runs an op of its own."""
    with tf.Graph().as_default() as graph:
        results = [sdp.allreduce([float(i + rank)], 0, 1, op=SUM, name=f"op{i}") for i in range(4)]
    with tf.compat.v1.Session(graph=graph) as session:
        for _ in range(10):
            found = in_threads(*(lambda result=result: float(session.run(result)[0]) for result in results))
            assert found == [i * size + sum(range(size)) for i in range(4)]


@pytest.mark.min_ranks(2)  # alone, nothing ever waits
def test_two_of_one_name_at_once_are_refused(rank, size):
    """They could not be told apart. Rank 0 raises the error, the others get it, and all can continue."""
    together = sdp.add_process_set(range(size))

    def reduce():
        with tf.Graph().as_default() as graph:
            result = sdp.allreduce([1.0], 0, 1, op=SUM)
        with tf.compat.v1.Session(graph=graph) as session:
            return float(session.run(result)[0])

    if rank == 0:
        results = in_threads(reduce, reduce)
        sdp.barrier(process_set=together)
    else:
        sdp.barrier(process_set=together)
        results = in_threads(reduce)
    for error in results:
        assert isinstance(error, tf.errors.OpError), results
        assert "two collectives with the name 'SmddpAllreduce'" in str(error), error
        assert "give each its own name=" in str(error), error
    sdp.remove_process_set(together)


def test_a_graph_after_an_error(rank, size):
    assert graph_with(rank, 1, None)() == wanted(1, size)


def test_a_while_loop(rank, size):
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        result = tf.while_loop(
            lambda i, x: i < 5,
            lambda i, x: (i + 1, sdp.allreduce(x, 0, 1) + 1.0),
            (0, tf.constant(float(rank))),
            parallel_iterations=1,
        )
        assert session.run(result)[1] == pytest.approx(sum(range(size)) / size + 5.0)


def test_thousands_of_names(rank, size):
    """Five thousand keys, a thousand in each op; the ranks make the ops in another order."""
    with tf.Graph().as_default() as graph:
        x = tf.constant([rank])
        results = {
            i: sdp.grouped_allgather([x + i] * 1000, name=f"op{i}")
            for i in (range(5) if rank % 2 else reversed(range(5)))
        }
    with tf.compat.v1.Session(graph=graph) as session:
        found = session.run(results)
    for i, gathered in found.items():
        assert np.array_equal(gathered, [[r + i for r in range(size)]] * 1000)

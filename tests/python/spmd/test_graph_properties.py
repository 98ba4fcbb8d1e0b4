"""The changes that TensorFlow's graph optimisers may make to the ops, and those that they must not."""

import re
import tempfile
import time

import tensorflow as tf
from tensorflow.python.eager import context
from values import sum_of_ranks

import tf_smddp as sdp

SUM = sdp.ReduceOp.SUM


def ops_that_run(function, *arguments):
    """The types of the ops that are left when TensorFlow has optimised the graph, with those in functions."""
    concrete = function.get_concrete_function(
        *arguments
    )  # not run yet: the graphs are shown at its first run
    context.enable_run_metadata()
    try:
        concrete(*arguments)
        metadata = context.export_run_metadata()
    finally:
        context.disable_run_metadata()
    nodes = [node.op for graph in metadata.partition_graphs for node in graph.node]
    assert nodes
    return nodes + [
        node.op for graph in metadata.partition_graphs for f in graph.library.function for node in f.node_def
    ]


def test_a_constant_input_is_not_folded(rank, size):
    """Folded, the ranks would not meet at the second call; rank 0 is late there and the others wait."""
    value = float(rank + 1)
    function = tf.function(lambda: sdp.allreduce(tf.constant([value, 1.0]), 0, 1, op=SUM))
    assert function().numpy().tolist() == [sum_of_ranks(size), size]
    sdp.barrier()
    begin = time.perf_counter()
    if rank == 0:
        time.sleep(0.3)
    assert function().numpy().tolist() == [sum_of_ranks(size), size]
    assert time.perf_counter() - begin > 0.2 or size == 1
    assert ops_that_run(tf.function(function.python_function)).count("SmddpAllreduce") == 1


def test_identical_ops_are_not_merged(rank, size):
    @tf.function
    def function(x):
        return [sdp.allreduce(x, 0, 1, op=SUM) for _ in range(3)], [sdp.broadcast(x, 0) for _ in range(2)]

    ops = ops_that_run(function, tf.constant(rank + 1.0))
    assert ops.count("SmddpAllreduce") == 3
    assert ops.count("SmddpBroadcast") == 2
    assert ops.count("SmddpTicket") == 3


def test_allreduces_in_one_function_are_concurrent(rank, size):
    """The ranks have a group's tensors in different orders: if ops waited for ops, this would hang."""

    @tf.function
    def function(x):
        results = {}
        for i in range(5) if rank % 2 else reversed(range(5)):
            results[i] = sdp.allreduce(x * (i + 1), i, 5, op=SUM)
            assert "SmddpAllreduce" not in [op.type for op in results[i].op.control_inputs]
        return results

    for _ in range(3):
        results = function(tf.constant(rank + 1.0))
        assert [float(results[i]) for i in range(5)] == [(i + 1) * sum_of_ranks(size) for i in range(5)]


def test_broadcast_and_barrier_run_though_nobody_uses_them(rank, size):
    @tf.function
    def function(x):
        sdp.broadcast(x, 0)
        sdp.barrier()
        return x

    ops = ops_that_run(function, tf.constant(1.0))
    assert ops.count("SmddpBroadcast") == 1
    assert ops.count("SmddpBarrier") == 1


def test_a_group_has_one_ticket(rank):
    @tf.function
    def function(x):
        return [sdp.allreduce(x, i, 4) for i in range(4)]

    assert ops_that_run(function, tf.constant(1.0)).count("SmddpTicket") == 1


def test_autograph_leaves_our_functions_alone(tmp_path, monkeypatch):
    """It writes each function that it converts into a file."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    weight = tf.Variable([1.0, 2.0])
    pairs = sdp.global_process_set

    @tf.function
    def step(x):
        sdp.barrier()
        with sdp.DistributedGradientTape(tf.GradientTape()) as tape:
            loss = tf.reduce_sum(sdp.allreduce(weight * x, 0, 1))
        if pairs.included() and tf.reduce_sum(x) > 0:
            (gradient,) = tape.gradient(loss, [weight])
            return gradient * float(sdp.size()) + sdp.oob_allreduce(loss)
        return x

    step(tf.ones([2]))
    converted = [re.findall(r"def tf__(\w+)", path.read_text()) for path in tmp_path.glob("__autograph*.py")]
    assert converted == [["step"]]

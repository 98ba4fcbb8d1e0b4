"""Collectives and tf.data: refused in the functions that it runs, but for the loop over a dataset."""

import pytest
import tensorflow as tf
from values import sum_of_ranks

import tf_smddp as sdp

SUM = sdp.ReduceOp.SUM
DATASET = tf.data.Dataset.range(4)


def reduce(x):
    return sdp.allreduce(x, 0, 1, op=SUM)


def in_a_branch(x):
    return tf.cond(x > 1, lambda: reduce(x), lambda: x)


PIPELINES = {
    "map": lambda: DATASET.map(reduce),
    "parallel map": lambda: DATASET.map(reduce, num_parallel_calls=2),
    "filter": lambda: DATASET.filter(lambda x: reduce(x) > 0),
    "flat_map": lambda: DATASET.flat_map(lambda x: tf.data.Dataset.from_tensors(reduce(x))),
    "interleave": lambda: DATASET.interleave(lambda x: tf.data.Dataset.from_tensors(reduce(x))),
    "take_while": lambda: DATASET.take_while(lambda x: reduce(x) > 0),
    "scan": lambda: DATASET.scan(tf.constant(0, tf.int64), lambda state, x: (state, reduce(x))),
    "nested function": lambda: DATASET.map(tf.function(reduce)),
    "branch": lambda: DATASET.map(in_a_branch),
    "inside a function": lambda: tf.function(lambda: next(iter(DATASET.map(reduce))))(),
}


@pytest.mark.parametrize("pipeline", PIPELINES)
def test_functions_that_tf_data_runs(pipeline):
    with pytest.raises(
        RuntimeError, match=r"allreduce\(\) was called in a function that tf\.data runs \(Dataset_"
    ):
        PIPELINES[pipeline]()


def test_in_a_v1_graph():
    with tf.Graph().as_default(), pytest.raises(RuntimeError, match="Call it on what the dataset yields"):
        tf.compat.v1.data.Dataset.range(3).map(reduce)


@pytest.mark.parametrize(
    "collective",
    [
        lambda x: sdp.grouped_allreduce([x]),
        sdp.allgather,
        lambda x: sdp.grouped_allgather([x]),
        lambda x: sdp.reducescatter([x]),
        lambda x: sdp.grouped_reducescatter([[x]]),
        lambda x: sdp.alltoall([x]),
        lambda x: sdp.broadcast(x, 0),
        lambda x: (sdp.broadcast_variables([], 0), x)[1],
        lambda x: (sdp.barrier(), x)[1],
        lambda x: sdp.DistributedGradientTape(tf.GradientTape()).gradient(x, x),
    ],
)
def test_every_collective_is_refused(collective):
    with pytest.raises(RuntimeError, match=r"was called in a function that tf\.data runs"):
        DATASET.map(collective)


def test_a_loop_over_a_dataset_in_a_function(rank, size):
    @tf.function
    def function():
        results = tf.TensorArray(tf.int64, 4)
        for i, x in DATASET.enumerate():
            with tf.GradientTape() as tape:
                y = tf.cast(x + rank + 1, tf.float32)
                tape.watch(y)
                z = y * y
            gradient = sdp.DistributedGradientTape(tape, op=SUM).gradient(z, y)
            total = reduce(x + rank + 1) + tf.cast(gradient, tf.int64) * 1000
            results = results.write(tf.cast(i, tf.int32), total)
        return results.stack()

    for _ in range(3):
        totals = [int(x * size + sum_of_ranks(size)) for x in range(4)]
        assert function().numpy().tolist() == [2001 * total for total in totals]


def test_what_a_dataset_yields(rank, size):
    step = tf.function(lambda x: reduce(x + rank))
    found = [int(step(x)) for x in DATASET.map(lambda x: x + 1)]
    assert found == [(x + 1) * size + sum(range(size)) for x in range(4)]

"""Collectives and tf.data: refused in the functions that it runs, but for the loop over a dataset."""

import pytest
import tensorflow as tf
from values import sum_of_ranks

import tf_smddp as sdp

pytestmark = pytest.mark.one_rank

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


# Traced here, outside of tf.data.
TRACED = tf.function(reduce)
TRACED(tf.constant(0, tf.int64))
TRACED_BRANCH = tf.function(in_a_branch)
TRACED_BRANCH(tf.constant(0, tf.int64))
COMPILED = tf.function(reduce, jit_compile=True)
COMPILED(tf.constant(0, tf.int64))


def generator():
    yield TRACED(tf.constant(0, tf.int64))


TRACED_BEFORE = {
    "map": lambda: DATASET.map(TRACED),
    "parallel map": lambda: DATASET.map(lambda x: TRACED(x + 1), num_parallel_calls=2),
    "concrete function": lambda: DATASET.map(TRACED.get_concrete_function(tf.TensorSpec([], tf.int64))),
    "nested function": lambda: DATASET.map(tf.function(lambda x: TRACED(x) + 1)),
    "branch": lambda: DATASET.map(TRACED_BRANCH),
    "in a branch": lambda: DATASET.map(lambda x: tf.cond(x > 1, lambda: TRACED(x), lambda: x)),
    "compiled": lambda: DATASET.map(COMPILED),
    "loop over a dataset": lambda: tf.function(lambda: DATASET.map(TRACED).reduce(x0, tf.add))(),
    "within a loop over a dataset": lambda: DATASET.map(lambda x: x + sum_of_a_loop()),
}
x0 = tf.constant(0, tf.int64)


@tf.function
def sum_of_a_loop():
    total = tf.constant(0, tf.int64)
    for x in DATASET:
        total += TRACED(x)
    return total


@pytest.mark.parametrize("pipeline", TRACED_BEFORE)
def test_a_function_that_was_traced_before(pipeline):
    assert int(sum_of_a_loop()) >= 0
    with pytest.raises(
        RuntimeError, match=r"'[\w/]*Smddp\w+' \(Smddp\w+\) of .* is called in a function that tf\.data runs"
    ):
        TRACED_BEFORE[pipeline]()


def in_python(call, stateful=True):
    return lambda x: tf.ensure_shape(tf.numpy_function(call, [x], tf.int64, stateful), [])


def call_python(x):
    return tf.py_function(TRACED, [x], tf.int64)


PYTHON = {
    "py_function": lambda: DATASET.map(lambda x: tf.py_function(reduce, [x], tf.int64)),
    "its function": lambda: DATASET.map(call_python, num_parallel_calls=2),
    "numpy_function": lambda: DATASET.map(in_python(lambda x: reduce(x).numpy())),
    "stateless": lambda: DATASET.map(in_python(lambda x: TRACED(x).numpy(), False)).prefetch(2),
    "traced before": lambda: DATASET.map(TRACED_PYTHON),
    "generator": lambda: tf.data.Dataset.from_generator(
        generator, output_signature=tf.TensorSpec([], tf.int64)
    ),
}
TRACED_PYTHON = tf.function(in_python(lambda x: TRACED(x).numpy() if x else x))
TRACED_PYTHON(tf.constant(0, tf.int64))


@pytest.mark.parametrize("pipeline", PYTHON)
def test_python_code_that_tf_data_runs(pipeline):
    data = PYTHON[pipeline]()
    with pytest.raises(
        tf.errors.OpError, match=r"RuntimeError: .* was called in a function that tf\.data runs"
    ):
        list(data)
    assert int(TRACED(tf.constant(1, tf.int64))) == sdp.size()  # nothing was sent


def test_python_code_elsewhere(rank, size):
    """Also in functions that tf.data runs, without collectives."""
    calls = []

    @tf.function
    def step(x):
        return tf.py_function(lambda x: TRACED(x + rank), [x], tf.int64)

    data = DATASET.map(in_python(lambda x: (calls.append(x), x + 1)[1]))
    assert [int(step(x)) for x in data] == [(x + 1) * size + sum(range(size)) for x in range(4)]
    assert sorted(calls) == [0, 1, 2, 3]


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

"""DistributedOptimizer around the optimizers of tf.compat.v1.train."""

import numpy as np
import pytest
import tensorflow as tf
from optimizer_families import EAGER_AND_GRAPH, assert_same_on_all_ranks
from values import sum_of_ranks

import tf_smddp as sdp

pytestmark = pytest.mark.gpu

v1 = tf.compat.v1
SUM = sdp.ReduceOp.SUM
OPTIMIZERS = pytest.mark.parametrize(
    "make",
    [
        lambda: v1.train.GradientDescentOptimizer(0.5),
        lambda: v1.train.MomentumOptimizer(0.5, 0.5),
        lambda: v1.train.AdamOptimizer(0.1),
    ],
    ids=["sgd", "momentum", "adam"],
)


def train(optimizer, factors, session_of):
    """Minimizes factor · x in a v1 graph; returns the weights and the global step."""
    with tf.Graph().as_default():
        x = v1.get_variable("x", initializer=[1.0, 2.0])
        table = v1.get_variable("table", initializer=np.zeros((3, 2), np.float32))
        factor = v1.placeholder(tf.float32, [])
        step = v1.train.get_or_create_global_step()
        loss = factor * (tf.reduce_sum(x) + tf.reduce_sum(tf.gather(table, [1, 1])))
        operation = optimizer.minimize(loss, global_step=step)
        assert isinstance(operation, tf.Operation)
        with session_of() as session:
            for value in factors:
                session.run(operation, {factor: value})
            return session.run([x, table, step])


def initialized_session():
    session = v1.Session()
    session.run(v1.global_variables_initializer())
    return session


@pytest.mark.one_tensorflow
@OPTIMIZERS
@pytest.mark.parametrize(
    "session_of", [initialized_session, v1.train.MonitoredTrainingSession], ids=["session", "monitored"]
)
@pytest.mark.parametrize("sparse_as_dense", [True, False])
def test_in_sessions(rank, size, make, session_of, sparse_as_dense):
    mine = train(
        sdp.DistributedOptimizer(make(), sparse_as_dense=sparse_as_dense),
        [2.0 * rank + 2.0 * step for step in range(3)],
        session_of,
    )
    wanted = train(make(), [size - 1.0 + 2.0 * step for step in range(3)], session_of)
    for value, reference in zip(mine, wanted):
        np.testing.assert_allclose(value, reference, rtol=1e-6, atol=1e-6)
    assert_same_on_all_ranks(mine[:2])


@EAGER_AND_GRAPH
def test_in_tf2(rank, size, mode):
    x = tf.Variable([1.0])
    optimizer = sdp.DistributedOptimizer(v1.train.GradientDescentOptimizer(1.0), op=SUM)

    @mode
    def step():
        optimizer.minimize(lambda: (rank + 1.0) * x, var_list=[x])

    step()
    assert x.numpy().tolist() == [1.0 - sum_of_ranks(size)]


def test_clipped_in_between(rank, size):
    """compute_gradients is reduced; so what users clip is the whole batch's gradient, and None stays None."""
    with tf.Graph().as_default(), v1.Session() as session:
        x, unused = v1.get_variable("x", initializer=[0.0]), v1.get_variable("unused", initializer=[0.0])
        optimizer = sdp.DistributedOptimizer(v1.train.GradientDescentOptimizer(1.0))
        pairs = optimizer.compute_gradients(10.0 * (rank + 1.0) * x * 2.0, [x, unused])
        assert pairs[1] == (None, unused)
        clipped = tf.clip_by_value(pairs[0][0], -15.0 * (size + 1), 9.0 * (size + 1))
        operation = optimizer.apply_gradients([(clipped, x)])
        session.run(v1.global_variables_initializer())
        session.run(operation)
        assert session.run(x).tolist() == [-9.0 * (size + 1)]


def test_the_object_is_the_plain_one():
    optimizer = v1.train.MomentumOptimizer(0.5, 0.5)
    assert sdp.DistributedOptimizer(optimizer, use_locking=True) is optimizer
    assert isinstance(optimizer, v1.train.MomentumOptimizer)
    assert optimizer._use_locking
    assert optimizer.get_name() == "Momentum"
    with pytest.raises(ValueError, match="distributed already"):
        sdp.DistributedOptimizer(optimizer)


def test_slots_have_the_plain_names_and_nodes_the_given_one():
    with tf.Graph().as_default() as graph:
        x = v1.get_variable("x", initializer=[0.0])
        optimizer = sdp.DistributedOptimizer(v1.train.MomentumOptimizer(0.5, 0.5), name="Mine")
        optimizer.minimize(x[0] * 2.0)
        assert [variable.name for variable in v1.global_variables()] == ["x:0", "x/Momentum:0"]
        assert any(node.name.startswith("Mine_Allreduce") for node in graph.get_operations())
        assert optimizer.get_slot(x, "momentum") is not None


@pytest.mark.parametrize("outside", [False, True])
def test_loss_scale(rank, size, outside):
    wrap = v1.mixed_precision.MixedPrecisionLossScaleOptimizer
    with tf.Graph().as_default(), v1.Session() as session:
        scale = v1.mixed_precision.DynamicLossScale(initial_loss_scale=8.0)
        optimizer = v1.train.GradientDescentOptimizer(1.0)
        if outside:
            optimizer = wrap(sdp.DistributedOptimizer(optimizer), scale)
        else:
            optimizer = sdp.DistributedOptimizer(wrap(optimizer, scale))
        x = v1.get_variable("x", initializer=[0.0])
        factor = v1.placeholder(tf.float32, [])
        operation = optimizer.minimize(factor * x[0])
        session.run(v1.global_variables_initializer())
        values = []
        for value in (2.0 * rank, np.inf if rank == 0 else 1.0, 2.0 * rank):
            session.run(operation, {factor: value})
            values.append(float(session.run(x)[0]))
        assert values == [1.0 - size, 1.0 - size, 2.0 - 2.0 * size]

"""BroadcastGlobalVariablesHook and broadcast_global_variables: v1 sessions and estimators."""

import warnings

import numpy as np
import pytest
import tensorflow as tf

import tf_smddp as sdp

pytestmark = [pytest.mark.one_rank, pytest.mark.gpu]

v1 = tf.compat.v1


def graph_of(start):
    """A weight that starts at `start` and grows by 1 in each step. Returns it and the step's op."""
    weight = v1.get_variable("weight", initializer=float(start), use_resource=False)
    v1.get_variable("resource", initializer=np.float64(start), use_resource=True)
    v1.get_variable("flag", initializer=start == 0)
    step = v1.train.get_or_create_global_step()
    with tf.control_dependencies([step.assign_add(1)]):
        return weight, weight.assign_add(1.0)


def run(start, folder, hooks, last_step):
    """Returns what all global variables are before the first step, and the weight at the end."""
    with tf.Graph().as_default():
        _, train = graph_of(start)
        hooks = [*hooks, v1.train.StopAtStepHook(last_step=last_step)]
        variables = v1.global_variables()
        with v1.train.MonitoredTrainingSession(
            checkpoint_dir=folder, hooks=hooks, log_step_count_steps=None
        ) as session:
            before = session.run(variables)
            while not session.should_stop():
                end = session.run(train)
    return before, end


def test_initial_values(rank, size):
    root = size - 1
    before, end = run(10 * rank, None, [sdp.BroadcastGlobalVariablesHook(root)], 3)
    assert before == [10.0 * root, 10.0 * root, root == 0, 0]
    assert end == 10 * root + 3


def test_without_the_hook_they_differ(rank):
    assert run(10 * rank, None, [], 3)[1] == 10 * rank + 3


def test_a_checkpoint_that_only_rank_0_has(rank, tmp_path):
    """It reaches all, with the global step, so that all stop at the same one."""
    hook = sdp.BroadcastGlobalVariablesHook(0)
    folder = str(tmp_path) if rank == 0 else None
    assert run(100 + rank, folder, [hook], 2)[1] == 102
    before, end = run(200 + rank, folder, [hook], 5)
    assert before == [102.0, 100.0, False, 2]
    assert end == 105
    assert bool(list(tmp_path.iterdir())) == (rank == 0)


@pytest.mark.cpu_only("TensorFlow places an estimator's ops itself")
@pytest.mark.keras(2)  # TensorFlow 2.16, which came with Keras 3, has no estimators.
def test_estimator(rank, size, tmp_path):
    """Each call of train() has a graph of its own."""

    def model_fn(features, labels, mode):
        weight, train = graph_of(100 + rank)
        total = sdp.allreduce(weight.read_value(), 0, 1, op=sdp.ReduceOp.SUM, name="total")
        return tf.estimator.EstimatorSpec(mode, loss=total, train_op=train)

    def input_fn():
        return tf.data.Dataset.from_tensors(([1.0], [1.0])).repeat()

    hook = sdp.BroadcastGlobalVariablesHook(0)
    for call in (1, 2):
        # Rank 0 resumes from its checkpoint; the others forget what they have learnt.
        folder = tmp_path / (str(call) if rank > 0 else "")
        config = tf.estimator.RunConfig(str(folder), save_summary_steps=None, log_step_count_steps=None)
        estimator = tf.estimator.Estimator(model_fn, config=config)
        estimator.train(input_fn, hooks=[hook], max_steps=2 * call)
        assert estimator.get_variable_value("weight") == 100 + 2 * call
        assert estimator.get_variable_value("global_step") == 2 * call


def test_broadcast_global_variables_in_a_session(rank, size):
    with tf.Graph().as_default(), v1.Session() as session:
        variables = [v1.get_variable(f"v{i}", initializer=[rank + float(i)]) for i in range(3)]
        operation = sdp.broadcast_global_variables(size - 1)
        session.run(v1.global_variables_initializer())
        assert session.run(operation) is None
        assert [float(value[0]) for value in session.run(variables)] == [size - 1.0 + i for i in range(3)]


@pytest.mark.parametrize("mode", [lambda function: function, tf.function], ids=["eager", "graph"])
def test_not_in_a_v1_graph(mode):
    with pytest.raises(RuntimeError, match=r"Call broadcast_variables\(model.weights, root_rank\) instead"):
        mode(lambda: sdp.broadcast_global_variables(0))()


def test_no_such_root(size):
    with tf.Graph().as_default(), pytest.raises(ValueError, match=f"root_rank={size}"):
        sdp.BroadcastGlobalVariablesHook(size).begin()


@pytest.mark.parametrize("what", ["plain", "distributed", "in a function", "no training"])
def test_a_graph_that_trains_and_reduces_nothing(rank, size, what):
    """As the one that model_to_estimator makes of a model with a distributed optimizer."""
    with tf.Graph().as_default(), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        weight = v1.get_variable("weight", initializer=1.0, use_resource=True)
        optimizer = v1.train.GradientDescentOptimizer(0.5)
        train = weight.assign_add(1.0)
        if what == "distributed":
            train = sdp.DistributedOptimizer(optimizer).minimize(weight * 2.0, var_list=[weight])
        elif what == "in a function":
            gradient = tf.function(lambda: sdp.allreduce(2.0))()
            train = optimizer.apply_gradients([(gradient, weight)])
        elif what == "plain":
            train = optimizer.minimize(weight * 2.0, var_list=[weight])
        with v1.train.MonitoredSession(hooks=[sdp.BroadcastGlobalVariablesHook(0)]) as session:
            session.run(train)
    texts = [str(each.message) for each in caught if "reduces no gradient" in str(each.message)]
    assert len(texts) == (what == "plain" and rank == 0 and size > 1), texts
    assert all("use a model_fn" in text for text in texts)

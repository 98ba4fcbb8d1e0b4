"""Tensors of equal shapes that mean different things do not meet.

Ranks with names, None gradients or variables in another order get an error that shows both sides, and go on.
"""

import numpy as np
import pytest
import tensorflow as tf
from modes import compiled, eager, in_a_v1_session, meet, modes
from optimizer_families import ALL, OF_KERAS_2, applier, each, each_and_tf_keras

import tf_smddp as sdp
import tf_smddp.horovod.tensorflow as hvd

SUM = sdp.ReduceOp.SUM
several_ranks = pytest.mark.min_ranks(2)


def assert_disagree(call, *parts, error=tf.errors.InternalError):
    """All ranks get the error, and the next collective is right."""
    with pytest.raises(error) as caught:
        call()
    for part in parts:
        assert part in str(caught.value), caught.value
    meet()  # a step of two tensors that disagree may fail twice
    assert float(sdp.allreduce(1.0, op=SUM)) == sdp.size()


COLLECTIVES = {
    "allreduce": lambda x, name: sdp.allreduce(x, op=SUM, name=name),
    "grouped_allreduce": lambda x, name: sdp.grouped_allreduce([x, x], op=SUM, name=name),
    "oob_allreduce": lambda x, name: sdp.oob_allreduce(x, op=SUM, name=name),
    "allgather": lambda x, name: sdp.allgather(x, name=name),
    "grouped_allgather": lambda x, name: sdp.grouped_allgather([x, x], name=name),
    "reducescatter": lambda x, name: sdp.reducescatter(x, op=SUM, name=name),
    "grouped_reducescatter": lambda x, name: sdp.grouped_reducescatter([x, x], op=SUM, name=name),
    "alltoall": lambda x, name: sdp.alltoall(x, name=name),
    "broadcast": lambda x, name: sdp.broadcast(x, 0, name=name),
    "hvd.allreduce": lambda x, name: hvd.allreduce(x, op=hvd.Sum, name=name),
    "hvd.allreduce of rows": lambda x, name: hvd.allreduce(
        tf.IndexedSlices(x, tf.range(12), tf.constant([12])), op=hvd.Sum, name=name
    ).values,
}


@several_ranks
@modes(eager, tf.function, compiled)
@pytest.mark.parametrize("collective", COLLECTIVES)
def test_names_in_another_order(rank, size, mode, collective):
    names = ["first", "second"] if rank < size - 1 else ["second", "first"]
    run = mode(lambda x: [COLLECTIVES[collective](x + i, name) for i, name in enumerate(names)])
    assert_disagree(
        lambda: run(tf.ones([12])), "'first", "'second", "different names", f"rank {size - 1} has"
    )


@several_ranks
@modes(eager, tf.function)
def test_barriers_in_another_order(rank, size, mode):
    def run():
        for name in ["first", "second"] if rank < size - 1 else ["second", "first"]:
            sdp.barrier(name=name)

    assert_disagree(mode(run), "barrier 'first'", "barrier 'second'", "different names")


@several_ranks
@modes(eager, tf.function)
def test_broadcasts_of_variables_in_another_order(rank, size, mode):
    variable = tf.Variable([1.0])
    name = "first" if rank < size - 1 else "second"
    run = mode(lambda: tf.stack(hvd.broadcast_([variable], 0, name=name)))
    assert_disagree(run, "'first/0'", "'second/0'", "different names")


@several_ranks
def test_objects_in_another_order(rank, size):
    name = "first" if rank < size - 1 else "second"
    assert_disagree(lambda: sdp.broadcast_object(1, name=name), "'first", "'second", "different names")


@several_ranks
def test_a_name_meets_no_tensor_without_one(rank, size):
    name = "first" if rank < size - 1 else None
    assert_disagree(lambda: sdp.allreduce(1.0, name=name), "'first'", "different names")


@pytest.mark.min_ranks(3)
def test_names_in_a_process_set(rank, size):
    pair = sdp.add_process_set([0, 2])
    if rank != 1:
        name = "first" if rank == 0 else "second"
        with pytest.raises(tf.errors.InternalError, match="different names"):
            sdp.allreduce(1.0, name=name, process_set=pair)
        assert float(sdp.allreduce(1.0, op=SUM, name="same", process_set=pair)) == 2.0
    sdp.remove_process_set(pair)


def test_in_a_v1_graph_tensors_meet_by_name(rank, size):
    def run(x):
        found = {name: sdp.allreduce(x * i, op=SUM, name=name) for i, name in enumerate("abc")}
        return [found[name] for name in "abc"]

    def run_backwards(x):
        found = {name: sdp.allreduce(x * i, op=SUM, name=name) for i, name in reversed([*enumerate("abc")])}
        return [found[name] for name in "abc"]

    found = in_a_v1_session(run if rank % 2 else run_backwards)(tf.ones([2]))
    assert [each.tolist() for each in found] == [[i * size] * 2 for i in range(3)]


# Which gradient of two is None on a rank; both kinds of variables have equal shapes.
def gradients_of_one_head(rank, size, variables, **options):
    head = 1 if rank < size - 1 else 2
    with tf.GradientTape() as tape:
        rows = tf.gather(variables[head], [0, 1]) if options else variables[head]
        loss = tf.reduce_sum(variables[0]) * tf.reduce_sum(rows)
    gradients = sdp.DistributedGradientTape(tape, **options).gradient(loss, variables)
    return [tf.convert_to_tensor(each) for each in gradients if each is not None]


DIFFERENT_HEADS = ("'head", "different variables", "number 1", "number 2", "None on one rank")


@several_ranks
@modes(eager, tf.function, compiled, in_a_v1_session)
@pytest.mark.parametrize("options", [{}, {"sparse_as_dense": True}, {"sparse_as_dense": False}], ids=str)
def test_each_rank_trains_another_head(rank, size, mode, options):
    def make():
        return [tf.Variable(tf.ones([4, 3]), name=name) for name in ("body", "head", "head_1")]

    if mode is in_a_v1_session:

        def run():
            with tf.Graph().as_default(), tf.compat.v1.Session() as session:
                gradients = gradients_of_one_head(rank, size, make(), **options)
                session.run(tf.compat.v1.global_variables_initializer())
                return session.run(gradients)

        return assert_disagree(run, *DIFFERENT_HEADS[1:])
    variables = make()
    run = mode(lambda: gradients_of_one_head(rank, size, variables, **options))
    return assert_disagree(run, *DIFFERENT_HEADS)


@several_ranks
@each_and_tf_keras(ALL)
def test_an_optimizer_trains_another_head_on_each_rank(rank, size, family):
    weights = [family.variable(tf.ones([2])) for _ in range(3)]
    apply = applier(sdp.DistributedOptimizer(family.optimizers.SGD(0.1)), weights)
    apply([tf.ones([2])] * 3)
    head = 1 if rank < size - 1 else 2
    gradients = [tf.ones([2]) if i in (0, head) else None for i in range(3)]
    assert_disagree(lambda: apply(gradients), "different variables")


@several_ranks
@each(OF_KERAS_2)
def test_several_passes_train_another_head_on_each_rank(rank, size, family):
    weights = [family.variable(tf.ones([2])) for _ in range(3)]
    optimizer = sdp.DistributedOptimizer(family.optimizers.SGD(0.1), backward_passes_per_step=2)
    apply = applier(optimizer, weights)
    head = 1 if rank < size - 1 else 2
    gradients = [tf.ones([2]) if i in (0, head) else None for i in range(3)]
    apply(gradients)
    assert_disagree(lambda: apply(gradients), "number 1", "number 2")


@several_ranks
@modes(eager, tf.function, compiled)
def test_variables_in_another_order(rank, size, mode):
    weights = [tf.Variable([1.0, 2.0], name=name) for name in ("first", "second")]

    def run(variables):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(weights[0]) * tf.reduce_sum(weights[1])
        return sdp.DistributedGradientTape(tape).gradient(loss, variables)

    run(weights)
    turned = weights[:: -1 if rank == size - 1 else 1]
    assert_disagree(
        mode(lambda: run(turned)), "'first'", "'second'", "lists of variables are in another order"
    )


@several_ranks
def test_new_variables_in_another_order(rank, size):
    weights = [tf.Variable([float(i)], name=name) for i, name in enumerate(("first", "second", "third"))]
    if rank == size - 1:
        weights[1:] = weights[:0:-1]
    with tf.GradientTape() as tape:
        loss = tf.add_n([tf.reduce_sum(each) for each in weights])
    values = [each.numpy().tolist() for each in weights]
    assert_disagree(
        lambda: sdp.DistributedGradientTape(tape).gradient(loss, weights),
        f"'second:0' on rank 0, and 'third:0' on rank {size - 1}".replace(":0", ""),
        error=RuntimeError,
    )
    assert [each.numpy().tolist() for each in weights] == values


@modes(eager, tf.function, compiled)
def test_names_of_variables_may_differ(rank, size, mode):
    weights = [tf.Variable([1.0, 2.0], name=f"dense_{rank + i}") for i in range(3)]

    def run(x):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(x) * (tf.reduce_sum(weights[0]) + tf.reduce_sum(weights[2]))
        return sdp.DistributedGradientTape(tape, op=SUM).gradient(loss, weights)

    run = mode(run)
    for length in (1, 1 + rank % 2, 1):  # one rank alone traces once more
        first, none, last = run(tf.ones([length]))
        assert none is None
        assert first.numpy().tolist() == last.numpy().tolist() == [float(size + (length > 1))] * 2 or size > 1


@several_ranks
def test_broadcasts_carry_the_names_of_variables(rank, size):
    weights = [tf.Variable(tf.zeros([2 + (rank == size - 1)]), name="hidden/kernel")]
    assert_disagree(
        lambda: sdp.broadcast_variables(weights, 0), "broadcast 'hidden/kernel' float32 [2], root 0"
    )


@several_ranks
def test_averages_of_metrics_carry_their_names(rank, size):
    logs = {"loss": 1.0, "val_loss": np.zeros([2 + (rank == size - 1)])}
    callback = sdp.keras.callbacks.MetricAverageCallback()
    assert_disagree(lambda: callback.on_epoch_end(0, logs), "'val_loss' average float64 [2]")

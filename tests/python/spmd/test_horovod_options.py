"""tf_smddp.horovod.tensorflow: what its collectives, tapes and optimizers do with Horovod's options."""

import json

import numpy as np
import pytest
import tensorflow as tf

import tf_smddp.horovod.tensorflow as hvd
import tf_smddp.horovod.tensorflow.keras as hvd_keras


def rows(rank, count):
    """Two columns of numbers that differ between rows and ranks."""
    return np.arange(1, 1 + 2 * count).reshape(count, 2).astype(np.float32) * (rank + 1)


def of_variable(function):
    def call(x, members):
        variable = tf.Variable(x)
        function([variable], members.ranks[-1], process_set=members)
        return variable

    return call


# Each with what it gives the i-th of `members`, whose rows are `all_rows`.
COLLECTIVES = {
    "allreduce": (
        lambda x, members: hvd.allreduce(x, op=hvd.Sum, process_set=members),
        lambda all_rows, i: sum(all_rows),
    ),
    "grouped_allreduce": (
        lambda x, members: hvd.grouped_allreduce([2.0 * x, x], op=hvd.Sum, process_set=members)[1],
        lambda all_rows, i: sum(all_rows),
    ),
    "product": (
        lambda x, members: hvd.allreduce(x, op=hvd.Product, process_set=members),
        lambda all_rows, i: np.prod(all_rows, axis=0),
    ),
    "reducescatter": (
        lambda x, members: hvd.reducescatter(x, op=hvd.Sum, process_set=members),
        lambda all_rows, i: sum(all_rows)[i : i + 1],
    ),
    "grouped_reducescatter": (
        lambda x, members: hvd.grouped_reducescatter([2.0 * x, x], process_set=members)[1],
        lambda all_rows, i: sum(all_rows)[i : i + 1] / len(all_rows),
    ),
    "allgather": (
        lambda x, members: hvd.allgather(x, process_set=members),
        lambda all_rows, i: np.concatenate(all_rows),
    ),
    "grouped_allgather": (
        lambda x, members: hvd.grouped_allgather([2.0 * x, x], process_set=members)[1],
        lambda all_rows, i: np.concatenate(all_rows),
    ),
    "alltoall": (
        lambda x, members: hvd.alltoall(x, process_set=members),
        lambda all_rows, i: np.stack([each[i] for each in all_rows]),
    ),
    "broadcast": (
        lambda x, members: hvd.broadcast(x, members.ranks[-1], process_set=members),
        lambda all_rows, i: all_rows[-1],
    ),
    "broadcast_": (of_variable(hvd.broadcast_), lambda all_rows, i: all_rows[-1]),
    "broadcast_variables": (of_variable(hvd.broadcast_variables), lambda all_rows, i: all_rows[-1]),
    "broadcast_object": (
        lambda x, members: hvd.broadcast_object(x.numpy(), members.ranks[-1], process_set=members),
        lambda all_rows, i: all_rows[-1],
    ),
    "allgather_object": (
        lambda x, members: np.concatenate(hvd.allgather_object(x.numpy(), process_set=members)),
        lambda all_rows, i: np.concatenate(all_rows),
    ),
}


@pytest.mark.parametrize("whole", [True, False], ids=["all", "some"])
@pytest.mark.parametrize("name", COLLECTIVES)
def test_collectives_of_a_process_set(rank, size, name, whole):
    ranks = list(range(0 if whole or size == 1 else 1, size))
    members = hvd.global_process_set if whole else hvd.add_process_set(ranks)
    collective, expected = COLLECTIVES[name]
    if rank in ranks:
        found = collective(tf.constant(rows(rank, len(ranks))), members)
        wanted = expected([rows(each, len(ranks)) for each in ranks], ranks.index(rank))
        np.testing.assert_allclose(np.asarray(found), wanted, rtol=1e-6)
    assert whole or hvd.remove_process_set(members)


@pytest.mark.parametrize(
    "options",
    [{"groups": 2}, {"groups": "lists"}, {"num_groups": 1}, {"gradient_predivide_factor": 2.0}],
    ids=str,
)
def test_options_that_leave_the_mean_as_it_is(rank, size, options):
    weights = [tf.Variable([1.0]), tf.Variable([2.0, 3.0])]
    if options == {"groups": "lists"}:
        options = {"groups": [[weights[0]], [weights[1]]]}
    mean = sum(range(1, size + 1)) / size

    def loss():
        return sum(tf.reduce_sum(weight) for weight in weights) * (rank + 1.0)

    with tf.GradientTape() as tape:
        value = loss()
    for gradient in hvd.DistributedGradientTape(tape, **options).gradient(value, weights):
        np.testing.assert_allclose(gradient, np.full(gradient.shape, mean), rtol=1e-6)
    plain = tf.compat.v1.train.GradientDescentOptimizer(1.0)
    hvd.DistributedOptimizer(plain, **options).minimize(loss, var_list=weights)
    np.testing.assert_allclose(weights[1], [2.0 - mean, 3.0 - mean], rtol=1e-6)
    of_keras = hvd_keras.DistributedOptimizer(tf.keras.optimizers.SGD(1.0), **options)
    of_keras.apply_gradients([(tf.constant([rank + 1.0]), weights[0])])
    np.testing.assert_allclose(np.asarray(weights[0]), [1.0 - 2 * mean], rtol=1e-6)


@pytest.mark.parametrize("scaled", [True, False])
def test_local_gradients_are_scaled_or_not(rank, size, scaled):
    own = tf.Variable([1.0])
    divisor = size if scaled else 1
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(own) * (rank + 1.0)
    tape = hvd.DistributedGradientTape(tape, scale_local_gradients=scaled)
    tape.register_local_source(own)
    np.testing.assert_allclose(tape.gradient(loss, own), [(rank + 1.0) / divisor], rtol=1e-6)
    optimizer = hvd_keras.DistributedOptimizer(tf.keras.optimizers.SGD(1.0), scale_local_gradients=scaled)
    optimizer.register_local_var(own)
    optimizer.apply_gradients([(tf.constant([rank + 1.0]), own)])
    np.testing.assert_allclose(np.asarray(own), [1.0 - (rank + 1.0) / divisor], rtol=1e-6)


class Halving(hvd.Compression.none):
    """A compression that shows where it was used: gradients come out halved."""

    @staticmethod
    def compress(tensor):
        return tensor / 2.0, None


def test_a_compression_by_its_place(size):
    """In Keras's order of arguments, which is not that of horovod.tensorflow."""
    for optimizer, wrap in (
        (tf.keras.optimizers.SGD(1.0), lambda it: hvd_keras.DistributedOptimizer(it, None, "", "", Halving)),
        (
            tf.keras.optimizers.SGD(1.0),
            lambda it: hvd.DistributedOptimizer(it, None, False, "", "", Halving),
        ),
    ):
        weight = tf.Variable([1.0])
        wrap(optimizer).apply_gradients([(tf.constant([1.0]), weight)])
        np.testing.assert_allclose(np.asarray(weight), [0.5])


def test_a_timeline_by_call(rank, tmp_path):
    file = tmp_path / "timeline.json"
    hvd.start_timeline(str(file))
    hvd.allreduce(tf.ones([3]), name="in_the_timeline")
    hvd.stop_timeline()
    hvd.allreduce(tf.ones([3]), name="after_the_timeline")
    assert file.exists() == (rank == 0)
    if rank == 0:
        events = str(json.loads(file.read_text()))
        assert "in_the_timeline" in events and "after_the_timeline" not in events

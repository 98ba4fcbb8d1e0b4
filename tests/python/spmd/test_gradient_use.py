"""Gradients that are reduced twice, or never, give one warning.

Twice: in the first step. Never: after the first batch of `fit` with our callbacks; in a custom loop, when the
job ends.
"""

import gc
import time
import warnings

import numpy as np
import pytest
import tensorflow as tf
from modes import eager, modes
from optimizer_families import ALL, each_and_tf_keras

import tf_smddp as sdp
import tf_smddp.horovod.tensorflow as hvd
from tf_smddp._guards import gradient_use, last_look, periodic_check
from tf_smddp._training.optimizers.arguments import reduces
from tf_smddp.keras import callbacks

TWICE = "gets gradients that DistributedGradientTape has reduced"
NEVER = "but no gradient was reduced"


@pytest.fixture
def told(monkeypatch):
    """Returns the warnings that have a text, as in a new process."""
    monkeypatch.setattr(gradient_use, "_seen", gradient_use._Seen())
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield lambda text: [str(each.message) for each in caught if text in str(each.message)]


@each_and_tf_keras(ALL)
@modes(eager, tf.function)
@pytest.mark.parametrize("with_tape", [False, True])
def test_tape_and_optimizer(rank, family, mode, with_tape, told):
    weight = family.variable([1.0, 2.0])
    optimizer = sdp.DistributedOptimizer(family.optimizers.SGD(0.1))
    if hasattr(optimizer, "build"):
        optimizer.build([weight])

    @mode
    def step():
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.convert_to_tensor(weight) ** 2)
        source = weight if isinstance(weight, tf.Variable) else weight.value
        tape = sdp.DistributedGradientTape(tape) if with_tape else tape
        gradient = tape.gradient(loss, source)
        optimizer.apply_gradients([(gradient, weight)])

    for _ in range(2):
        step()
    assert len(told(TWICE)) == (rank == 0 and with_tape), told(TWICE)


def test_a_tape_of_a_tape():
    tape = sdp.DistributedGradientTape(tf.GradientTape())
    with pytest.raises(TypeError, match=r"a plain tf\.GradientTape, but got a DistributedGradientTape"):
        sdp.DistributedGradientTape(tape)


def test_a_tape_for_some_and_an_optimizer_for_others(rank, told):
    mine, other = tf.Variable([1.0]), tf.Variable([2.0])
    with tf.GradientTape(persistent=True) as tape:
        loss = tf.reduce_sum(mine * other)
    sdp.DistributedGradientTape(tape).gradient(loss, [mine])
    optimizer = sdp.DistributedOptimizer(tf.compat.v1.train.GradientDescentOptimizer(0.1))
    optimizer.minimize(lambda: tf.reduce_sum(other), var_list=[other])
    assert told(TWICE) == []


def reduced_gradients(*variables):
    """Those of a sum, by a tape of its own. None for what is not in it."""
    with tf.GradientTape() as tape:
        loss = tf.add_n([tf.reduce_sum(tf.convert_to_tensor(each)) for each in variables[:1]])
    return sdp.DistributedGradientTape(tape).gradient(loss, [as_source(each) for each in variables])


def as_source(variable):
    return variable if isinstance(variable, tf.Variable) else variable.value


@pytest.mark.parametrize("of_optimizer", ["two", "first and other"])
@each_and_tf_keras(ALL)
def test_two_tapes_and_an_optimizer_that_has_some_of_their_variables(rank, family, of_optimizer, told):
    first, second, other = (family.variable([float(i)]) for i in range(3))
    reduced = [reduced_gradients(first)[0], reduced_gradients(second)[0]]
    chosen = [first, second] if of_optimizer == "two" else [first, other]
    sdp.DistributedOptimizer(family.optimizers.SGD(0.1)).apply_gradients(zip(reduced, chosen))
    assert len(told(TWICE)) == (rank == 0), told(TWICE)


@each_and_tf_keras(ALL)
def test_each_gradient_is_reduced_once(family, told):
    """Two optimizers, as for a GAN; gradients of several tapes that are added up; a persistent tape."""
    one, other = family.variable([1.0]), family.variable([2.0])
    plain = [family.optimizers.SGD(0.1) for _ in range(2)]
    for _ in range(2):
        for optimizer, variable in zip(plain, (one, other)):
            optimizer.apply_gradients(zip(reduced_gradients(variable), [variable]))
        total = sum(reduced_gradients(one)[0] for _ in range(3))
        plain[0].apply_gradients([(total, one)])
    # A tape has met these variables, but has reduced no gradient of them.
    apart = [family.variable([float(i)]) for i in range(2)]
    assert reduced_gradients(one, *apart)[1:] == [None, None]
    distributed = [sdp.DistributedOptimizer(family.optimizers.SGD(0.1)) for _ in range(2)]
    for _ in range(2):
        with tf.GradientTape(persistent=True) as tape:
            losses = [tf.reduce_sum(tf.convert_to_tensor(each) ** 2) for each in apart]
        for optimizer, loss, variable in zip(distributed, losses, apart):
            optimizer.apply_gradients([(tape.gradient(loss, as_source(variable)), variable)])
    assert told(TWICE) == []


def test_a_variable_that_is_no_more_is_none_of_an_optimizer_s(told):
    for number in range(50):
        reduced_gradients(tf.Variable([float(number)]))
        optimizer = sdp.DistributedOptimizer(tf.compat.v1.train.GradientDescentOptimizer(0.1))
        fresh = tf.Variable([1.0])
        optimizer.minimize(lambda: tf.reduce_sum(fresh), var_list=[fresh])  # noqa: B023
    assert told(TWICE) == []


def fit(family, optimizer, callback):
    layers = family.keras.layers
    family.keras.utils.set_random_seed(3)
    model = family.keras.Sequential([layers.InputLayer((3,)), layers.Dense(2)])
    model.compile(optimizer, family.keras.losses.MeanSquaredError())
    features = np.ones((8, 3), np.float32)
    model.fit(features, features[:, :2], batch_size=2, epochs=2, verbose=0, callbacks=[callback])


@pytest.mark.parametrize("distributed", [False, True])
@pytest.mark.parametrize(
    "callback", [callbacks.BroadcastGlobalVariablesCallback, callbacks.MetricAverageCallback, callbacks.Join]
)
@each_and_tf_keras([family for family in ALL if not family.is_beside_keras3])
def test_fit_with_a_plain_optimizer(rank, size, family, callback, distributed, told):
    optimizer = family.optimizers.SGD(0.1)
    fit(family, sdp.DistributedOptimizer(optimizer) if distributed else optimizer, callback())
    assert len(told(NEVER)) == (rank == 0 and size > 1 and not distributed), told(NEVER)
    for text in told(NEVER):
        assert callback.__name__ in text and "Wrap the optimizer in DistributedOptimizer" in text


@pytest.mark.parametrize("distributed", [False, True])
@each_and_tf_keras(ALL)
def test_a_train_step_with_a_tape(rank, family, distributed, told):
    """And with the model's optimizer, which reduces, too, or does not."""

    class Model(family.keras.Model):
        def __init__(self):
            super().__init__()
            self.dense = family.keras.layers.Dense(2)

        def call(self, features):
            return self.dense(features)

        def train_step(self, batch):
            features, targets = batch
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean((self(features) - targets) ** 2)
            sources = [as_source(each) for each in self.trainable_variables]
            gradients = sdp.DistributedGradientTape(tape).gradient(loss, sources)
            self.optimizer.apply_gradients(zip(gradients, self.trainable_variables))
            return {"loss": loss}

    optimizer = family.optimizers.SGD(0.1)
    model = Model()
    model.compile(sdp.DistributedOptimizer(optimizer) if distributed else optimizer, jit_compile=False)
    features = np.ones((8, 3), np.float32)
    model.fit(features, features[:, :2], batch_size=4, verbose=0)
    assert len(told(TWICE)) == (rank == 0 and distributed), told(TWICE)


def sums_by_sync_batch_normalization(weight):
    sdp.SyncBatchNormalization()(tf.ones([4, 2]), training=True)


def rows_by_horovods_names(weight):
    hvd.allreduce(tf.IndexedSlices(weight, tf.constant([0]), tf.constant([1])))


REDUCTIONS = {
    "nothing": (lambda weight: None, False),
    "average": (sdp.allreduce, True),
    "sum of a group": (lambda weight: sdp.grouped_allreduce([weight], op=sdp.ReduceOp.SUM), True),
    "rows": (sdp.reducescatter, True),
    "rows of a group": (lambda weight: sdp.grouped_reducescatter([weight]), True),
    "tape": (reduced_gradients, True),
    "rows, by Horovod's names": (rows_by_horovods_names, True),
    "least number of batches": (lambda weight: sdp.allreduce(tf.constant(3), op=sdp.ReduceOp.MIN), False),
    "number of samples": (lambda weight: sdp.allreduce(tf.constant(3), op=sdp.ReduceOp.SUM), False),
    "largest loss": (lambda weight: sdp.allreduce(weight, op=sdp.ReduceOp.MAX), False),
    "loss": (sdp.oob_allreduce, False),
    "SyncBatchNormalization": (sums_by_sync_batch_normalization, False),
}


@pytest.mark.parametrize("what", REDUCTIONS)
def test_a_loop_that_broadcasts(rank, size, told, what):
    """It is warned of at the end of the job, unless something may have been gradients."""
    reduce, may_be_gradients = REDUCTIONS[what]
    weight = tf.Variable([1.0])
    sdp.broadcast_variables([weight], 0)
    reduce(weight)
    gradient_use._at_shutdown()
    assert len(told(NEVER)) == (rank == 0 and size > 1 and not may_be_gradients), told(NEVER)


@pytest.mark.parametrize("reduced", [False, True])
def test_a_loop_in_join(rank, size, told, reduced):
    weight = tf.Variable([1.0])
    with sdp.join(weight):
        for _ in range(1 + rank):
            if reduced:
                reduced_gradients(weight)
            weight.assign_add([float(rank)])
    gradient_use._at_shutdown()
    assert len(told(NEVER)) == (rank == 0 and size > 1 and not reduced), told(NEVER)


def test_rows_that_a_tape_gathers_are_gradients(told):
    table = tf.Variable(tf.ones([3, 2]))
    sdp.broadcast_variables([table], 0)
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(tf.gather(table, [0, 2]))
    sdp.DistributedGradientTape(tape, sparse_as_dense=False).gradient(loss, table)
    gradient_use._at_shutdown()
    assert told(NEVER) == []


@pytest.mark.parametrize("what", ["trained", "not yet", "reduced", "loaded"])
def test_a_minute_after_a_broadcast(rank, size, told, what, monkeypatch):
    monkeypatch.setattr(gradient_use, "_SECONDS", 0.1)
    weight = tf.Variable([1.0])
    sdp.broadcast_variables([weight], 0)
    if what == "reduced":
        reduced_gradients(weight)
    for step in range(10):
        if what == "trained" or (step == 0 and what != "not yet"):
            weight.assign_add([1.0])
        time.sleep(0.05)
    wanted = rank == 0 and size > 1 and what == "trained"
    assert len(told("get new values again and again, " + NEVER)) == wanted, told(NEVER)
    gradient_use._stop_timer()


@pytest.mark.parametrize("second", ["plain", "distributed", "with a tape", "unused"])
@each_and_tf_keras(ALL)
def test_the_second_optimizer_of_a_loop(rank, size, family, second, told):
    mine, other, copied = (family.variable([float(i)]) for i in range(3))
    sdp.broadcast_variables([mine, other, copied], 0)
    one, two = (family.optimizers.SGD(0.1, momentum=0.5) for _ in range(2))
    one = sdp.DistributedOptimizer(one)
    if second == "distributed":
        two = sdp.DistributedOptimizer(two)
    gradient = reduced_gradients(other)[0] if second == "with a tape" else tf.constant([1.0])
    gc.collect()
    gc.unfreeze()
    one.apply_gradients([(tf.constant([1.0]), mine)])
    if hasattr(two, "build"):
        two.build([other])
    if second != "unused":
        two.apply_gradients([(gradient, other)])
    copied.assign(tf.convert_to_tensor(mine))  # as the weights of a target network
    last_look._look()
    gc.freeze()
    found = told("has applied gradients that were not reduced")
    assert len(found) == (rank == 0 and size > 1 and second == "plain"), found
    assert all("an optimizer (SGD)" in text for text in found)


@each_and_tf_keras(ALL)
def test_an_optimizer_that_came_with_a_loaded_model(rank, family, told):
    """It has steps behind it, and trains nothing."""
    mine, teachers = tf.Variable([1.0]), tf.Variable([1.0])
    one, loaded = sdp.DistributedOptimizer(family.optimizers.SGD(0.5)), family.optimizers.Adam(0.5)
    gc.collect()
    gc.unfreeze()
    loaded.apply_gradients([(tf.constant([1.0]), teachers)])
    sdp.broadcast_variables([mine], 0)
    sdp.broadcast_variables([teachers], 0)
    one.apply_gradients([(tf.constant([1.0]), mine)])
    last_look._look()
    gc.freeze()
    assert not told("has applied gradients that were not reduced")


@pytest.mark.keras(2)  # Keras 3 takes no optimizers of tf.compat.v1.train
def test_a_v1_optimizer_in_a_v1_graph_of_keras():
    with tf.Graph().as_default():
        wrapped = tf.keras.optimizers.get(sdp.DistributedOptimizer(tf.compat.v1.train.AdamOptimizer()))
        assert reduces(wrapped)
        assert not reduces(tf.keras.optimizers.get(tf.compat.v1.train.AdamOptimizer()))


def test_weights_of_a_loop_that_are_not_finite(rank, size, told, monkeypatch):
    monkeypatch.setattr(periodic_check._state, "told_of_weights", False)
    weight = tf.Variable([1.0, 2.0], name="weight")
    sdp.broadcast_variables([weight], 0)
    for value in (1.0, float("nan"), 1.0):
        gradient = reduced_gradients(weight)[0] * (value if rank == size - 1 else 1.0)
        weight.assign_sub(sdp.allreduce(gradient))
    last_look._look()
    found = told("the weights are not finite: 'weight:0' has a NaN or an infinity")
    assert len(found) == (rank == 0 and size > 1), found

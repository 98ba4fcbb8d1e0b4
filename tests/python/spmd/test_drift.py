"""Between the epochs of `fit`, ranks compare their trained weights, and warn if these differ.

So an optimizer that does not reduce is noticed, whatever else was reduced. Weights that may differ
give no warning.
"""

import warnings

import numpy as np
import pytest
import tensorflow as tf
from optimizer_families import ALL, array, each_and_tf_keras

import tf_smddp as sdp
import tf_smddp.horovod.tensorflow as hvd
from tf_smddp._guards import drift, gradient_use, periodic_check
from tf_smddp.keras import callbacks

FAMILIES = [family for family in ALL if not family.is_beside_keras3]
DIFFER = "the ranks' weights differ: "
NOT_REDUCED = "has applied gradients that were not reduced"


@pytest.fixture
def told(monkeypatch):
    """Returns the warnings that have a text. Weights are compared after each epoch, however short it is."""
    monkeypatch.setattr(drift, "_PARTS_OF_TIME", 0)
    monkeypatch.setattr(periodic_check._state, "told_of_weights", False)
    monkeypatch.setattr(gradient_use, "_seen", gradient_use._Seen())
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield lambda text: [str(each.message) for each in caught if text in str(each.message)]


def assert_told(told, rank, size, text, *parts):
    found = told(text)
    assert len(found) == (rank == 0 and size > 1), found
    for each in found:
        assert all(part in each for part in parts), each


def data(rank, rows=16):
    random = np.random.default_rng(rank)
    return random.normal(size=(rows, 3)).astype(np.float32), random.normal(size=(rows, 2)).astype(np.float32)


def fit(model, rank, *more, epochs=1, rows=16):
    given = [callbacks.BroadcastGlobalVariablesCallback(0), *more]
    model.fit(*data(rank, rows), batch_size=4, epochs=epochs, verbose=0, shuffle=False, callbacks=given)


def made(family, *layers):
    found = family.keras.layers
    return family.keras.Sequential([found.InputLayer((3,)), *layers, found.Dense(2, name="last")])


def sgd(family):
    return family.optimizers.SGD(0.1)


def compile_(family, model, optimizer):
    model.compile(optimizer, family.keras.losses.MeanSquaredError(), jit_compile=False)
    return model


@each_and_tf_keras(FAMILIES)
def test_another_compile_with_a_plain_optimizer(rank, size, family, told):
    model = compile_(family, made(family), sdp.DistributedOptimizer(sgd(family)))
    fit(model, rank)
    assert not told(DIFFER) and not told(NOT_REDUCED)
    fit(compile_(family, model, sgd(family)), rank, epochs=2)
    assert_told(told, rank, size, NOT_REDUCED, "an optimizer (SGD)", "also after another compile()")
    assert_told(
        told, rank, size, DIFFER, "after epoch 1", "2 of 2 trained variables, first ", "last", "of rank 1"
    )


@each_and_tf_keras(FAMILIES)
def test_an_optimizer_that_was_made_of_a_config(rank, size, family, told):
    distributed = sdp.DistributedOptimizer(sgd(family))
    plain = distributed.__class__.from_config(distributed.get_config())
    fit(compile_(family, made(family), distributed), rank)
    fit(compile_(family, made(family), plain), rank)
    assert_told(told, rank, size, NOT_REDUCED)
    assert_told(told, rank, size, DIFFER)


def two_models(family, one, other):
    """A model that trains two layers, each with an optimizer."""

    class Two(family.keras.Model):
        def __init__(self):
            super().__init__()
            self.parts = [family.keras.layers.Dense(2, name=name) for name in ("one", "other")]
            for part in self.parts:
                part.build((None, 3))
            self.built = True
            self.optimizers = [one, other]

        def call(self, features):
            return self.parts[0](features) + self.parts[1](features)

        def train_step(self, batch):
            features, targets = batch
            with tf.GradientTape(persistent=True) as tape:
                loss = tf.reduce_mean((self(features) - targets) ** 2)
            for part, optimizer in zip(self.parts, self.optimizers):
                sources = [v if isinstance(v, tf.Variable) else v.value for v in part.trainable_variables]
                optimizer.apply_gradients(zip(tape.gradient(loss, sources), part.trainable_variables))
            return {"loss": loss}

    model = Two()
    for part, optimizer in zip(model.parts, (one, other)):
        if hasattr(optimizer, "build"):
            optimizer.build(part.trainable_variables)
    return compile_(family, model, sgd(family))


@each_and_tf_keras(FAMILIES)
@pytest.mark.parametrize("wrapped", [False, True])
def test_the_second_of_two_optimizers(rank, size, family, wrapped, told):
    other = sdp.DistributedOptimizer(sgd(family)) if wrapped else sgd(family)
    fit(two_models(family, sdp.DistributedOptimizer(sgd(family)), other), rank)
    assert not told(NOT_REDUCED)
    if wrapped:
        assert not told(DIFFER)
    else:
        assert_told(told, rank, size, DIFFER, "2 of 4 trained variables, first", "kernel'")


class Changes(tf.keras.callbacks.Callback):
    """Changes a variable in the second epoch, on one rank."""

    def __init__(self, index):
        super().__init__()
        self.index = index

    def on_epoch_end(self, epoch, logs=None):
        if epoch == 1:
            variable = self.model.weights[self.index]
            variable.assign(array(variable) + 0.5)


@each_and_tf_keras(FAMILIES)
def test_a_rank_changes_its_weights(rank, size, family, told):
    model = compile_(family, made(family), sdp.DistributedOptimizer(sgd(family)))
    fit(model, rank, *([Changes(1)] if rank == size - 1 else []), epochs=4)
    assert_told(
        told,
        rank,
        size,
        DIFFER,
        "after epoch 2",
        "1 of 2",
        "last/bias",
        f"of rank {size - 1} from",
        "up to 0.5.",
    )


@each_and_tf_keras(FAMILIES)
def test_weights_that_are_not_finite(rank, size, family, told):
    """One rank's data has a NaN, which ReLU keeps out of the loss on CPUs."""
    model = compile_(family, made(family), sdp.DistributedOptimizer(sgd(family)))
    features, targets = data(rank)
    if rank == size - 1:
        features[5, 1] = np.nan
    callback = callbacks.BroadcastGlobalVariablesCallback(0)
    model.fit(features, targets, batch_size=4, epochs=2, verbose=0, callbacks=[callback])
    found = told("the weights are not finite")
    assert len(found) == (rank == 0 and size > 1) and all("last/kernel" in each for each in found), found
    assert not told(DIFFER)


def test_it_can_be_turned_off(rank, monkeypatch, told):
    monkeypatch.setenv("SMDDP_CHECK_EVERY", "0")
    family = FAMILIES[0]
    model = compile_(family, made(family), sdp.DistributedOptimizer(sgd(family)))
    fit(model, rank, *([Changes(1)] if rank == 0 else []), epochs=3)
    assert not told(DIFFER)


def test_epochs_are_left_out_where_it_takes_long(rank, size, monkeypatch):
    """By the slowest rank's time: each looks at the clock when a check begins, and when it has hashes."""
    check = drift.EpochCheck("the test")
    checked = []
    monkeypatch.setattr(
        check, "_hashes_of", lambda variables: checked.append(len(ended)) or ([b"12345678"], {})
    )
    now, ended = [0.0], []
    monkeypatch.setattr(drift.time, "monotonic", lambda: now.append(now[-1] + 0.001 * (rank + 1)) or now[-1])
    check.begin()
    for _ in range(10):
        ended.append(None)
        now.append(now[-1] + 0.05)
        check.run([], len(ended))
    # 1% of an epoch of 50 ms is 0.5 ms, and the last rank takes one ms for each rank.
    assert checked == ([1, 1 + 2 * size, 1 + 4 * size] if size > 1 else [])[: len(checked)]
    assert len(checked) == (0 if size == 1 else 2 if size == 3 else 3)


@each_and_tf_keras(FAMILIES)
def test_what_may_differ(rank, size, family, told):
    """Moving averages, dropout, what a user's layer counts; a frozen layer."""
    layers = family.keras.layers
    family.keras.utils.set_random_seed(rank)
    frozen = layers.Dense(4, trainable=False)
    model = made(family, frozen, layers.BatchNormalization(), layers.Dropout(0.5))
    fit(
        compile_(family, model, sdp.DistributedOptimizer(sgd(family))),
        rank,
        callbacks.MetricAverageCallback(),
        epochs=2,
    )
    assert not told(DIFFER)


def test_ranks_with_different_numbers_of_batches(rank, told):
    family = FAMILIES[0]
    model = compile_(family, made(family), sdp.DistributedOptimizer(sgd(family)))
    fit(model, rank, callbacks.Join(), epochs=2, rows=8 + 4 * rank)
    assert not told(DIFFER)


def test_fit_within_join(rank, told):
    family = FAMILIES[0]
    model = compile_(family, made(family), sdp.DistributedOptimizer(sgd(family)))
    with sdp.join(model):
        fit(model, rank, rows=8 + 4 * rank)
    assert not told(DIFFER)
    assert not sdp.join.is_open()


@pytest.mark.min_ranks(2)
def test_a_train_step_with_a_tape_of_a_process_set(rank, size, told):
    """The sets train different numbers of epochs."""
    family = FAMILIES[0]
    sets = [sdp.add_process_set([0]), sdp.add_process_set(list(range(1, size)))]

    class Model(family.keras.Model):
        def __init__(self):
            super().__init__()
            self.dense = family.keras.layers.Dense(2)

        def call(self, inputs, training=False):
            return self.dense(inputs)

        def train_step(self, data):
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean((self(data[0], training=True) - data[1]) ** 2)
            tape = sdp.DistributedGradientTape(tape, process_set=sets[rank > 0])
            gradients = tape.gradient(loss, self.trainable_variables)
            self.optimizer.apply_gradients(zip(gradients, self.trainable_variables))
            return {"loss": loss}

    fit(compile_(family, Model(), sgd(family)), rank, epochs=1 + (rank > 0))
    assert not told(DIFFER)
    for each in sets:
        sdp.remove_process_set(each)


@pytest.mark.min_ranks(2)
def test_what_a_process_set_trains(rank, size, told):
    """The sets train different numbers of epochs."""
    family = FAMILIES[0]
    sets = [sdp.add_process_set([0]), sdp.add_process_set(list(range(1, size)))]
    optimizer = sdp.DistributedOptimizer(sgd(family), process_set=sets[rank > 0])
    fit(compile_(family, made(family), optimizer), rank, epochs=1 + (rank > 0))
    other = sdp.DistributedOptimizer(sgd(family), process_set=sets[rank > 0])
    fit(two_models(family, sdp.DistributedOptimizer(sgd(family)), other), rank, epochs=2)
    assert not told(DIFFER)
    for each in sets:
        sdp.remove_process_set(each)


def test_what_each_rank_has_for_itself(rank, told):
    """By Horovod's names, also where one rank alone says so."""
    family = FAMILIES[0]
    other = hvd.DistributedOptimizer(sgd(family))
    model = two_models(family, hvd.DistributedOptimizer(sgd(family)), other)
    for variable in model.parts[1].trainable_variables:
        other.register_local_var(variable)
    fit(model, rank, epochs=2)
    assert not told(DIFFER)


def test_a_variable_that_another_rank_leaves_out(rank, size, told):
    variables = [tf.Variable([1.0]), tf.Variable([float(rank)], trainable=rank > 0), tf.Variable([2.0])]
    check = drift.EpochCheck("the test")
    for epoch in (1, 2):
        check.run(variables, epoch)
    assert not told(DIFFER)
    assert check._left_out == ({1} if size > 1 else set())
    variables[2].assign([float(rank)])
    check.run(variables, 3)
    assert_told(told, rank, size, DIFFER, "after epoch 3", "1 of 2 trained variables" if size > 1 else "")

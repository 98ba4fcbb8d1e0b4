"""Ranks that begin with different weights get rank 0's, before the first reduced gradients, and are told."""

import re
import warnings

import numpy as np
import pytest
import tensorflow as tf
from modes import compiled, eager, modes
from optimizer_families import ALL, array, assert_same_on_all_ranks, each_and_tf_keras
from values import assert_equal

import tf_smddp as sdp


@pytest.fixture
def caught():
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield caught


def assert_told(caught, rank, size, variable, ranks):
    texts = [str(each.message) for each in caught if "the ranks' weights differ" in str(each.message)]
    assert len(texts) == (rank == 0 and size > 1), texts
    for text in texts:
        assert f"{variable!r} of rank{ranks} is not rank 0's" in text and "broadcast_variables()" in text, (
            text
        )


def others(size):
    return "s 1, 2" if size == 3 else " 1"


def make_step(mode, weights, optimizer=None):
    @mode
    def step(x):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(x * weights[0]) + tf.reduce_sum(weights[1] ** 2)
        gradients = sdp.DistributedGradientTape(tape).gradient(loss, weights)
        for weight, gradient in zip(weights, gradients):
            weight.assign_sub(0.5 * gradient)

    return step


@modes(eager, tf.function, compiled)
def test_a_custom_loop(rank, size, mode, caught):
    weights = [tf.Variable(tf.ones([3]), name="same"), tf.Variable([float(rank), 4.0], name="other")]
    step = make_step(mode, weights)
    for _ in range(2):
        step(tf.constant([2.0, 4.0, 6.0]))
    assert_told(caught, rank, size, "other:0", others(size))
    assert_same_on_all_ranks([weight.numpy() for weight in weights])
    assert_equal(
        weights[0].numpy(), np.array([-1.0, -3.0, -5.0], np.float32), "the weights that were the same"
    )
    if mode is not eager:  # where the gradients of the first step were made of the old weights
        assert_equal(weights[1].numpy(), np.array([0.0, 0.0], np.float32), "rank 0's weights after its steps")


@pytest.mark.min_ranks(3)
def test_rank_0_has_no_batch(rank, size, caught):
    weights = [tf.Variable(tf.ones([3]), name="same"), tf.Variable([float(rank), 4.0], name="other")]
    step = make_step(tf.function, weights)
    for batches in (0 if rank == 0 else 2, 1):
        with sdp.join(weights):
            for _ in range(batches):
                step(tf.constant([2.0, 4.0, 6.0]))
    assert_same_on_all_ranks([weight.numpy() for weight in weights])
    texts = [str(each.message) for each in caught if "the ranks' weights differ" in str(each.message)]
    assert len(texts) == (rank == 1), texts
    for text in texts:
        assert "'other:0' of rank 2 is not rank 1's. All ranks have got rank 1's values now" in text, text


def test_equal_weights_are_no_news(rank, size, caught):
    weights = [tf.Variable([1.0, np.nan]), tf.Variable([2.0])]
    for mode in (eager, tf.function):
        make_step(mode, weights)(tf.constant([1.0, 1.0]))
    assert not caught, [str(each.message) for each in caught]


def test_each_variable_is_compared_once(rank, size, caught):
    """So a rank that alone traces its step once more does not wait for others."""
    weights = [tf.Variable([1.0, 2.0]), tf.Variable([3.0])]
    step = make_step(tf.function, weights)
    step(tf.constant([1.0, 1.0]))
    step(tf.ones([1 + rank % 2, 2]))
    more = [*weights, tf.Variable([float(rank)], name="more")]
    with tf.GradientTape() as tape:
        loss = tf.add_n([tf.reduce_sum(each) for each in more])
    sdp.DistributedGradientTape(tape).gradient(loss, more)
    assert_told(caught, rank, size, "more:0", others(size))
    assert_equal(more[2].numpy(), np.array([0.0], np.float32), "rank 0's")


def test_variables_that_the_step_creates(rank, size, caught):
    created = []

    @tf.function
    def step(x):
        if not created:
            created.append(tf.Variable([float(rank), 1.0], name="created"))
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(x * created[0])
        gradient = sdp.DistributedGradientTape(tape).gradient(loss, created[0])
        created[0].assign_sub(gradient)

    for _ in range(2):
        step(tf.constant([1.0, 1.0]))
    assert_told(caught, rank, size, "created:0", others(size))
    assert_equal(created[0].numpy(), np.array([-2.0, -1.0], np.float32), "rank 0's values after two steps")


def test_one_rank_restores_a_checkpoint(rank, size, caught, tmp_path):
    weights = [tf.Variable([1.0]), tf.Variable([2.0], name="restored")]
    if rank == size - 1:
        tf.train.Checkpoint(weight=tf.Variable([7.0])).write(str(tmp_path / "saved"))
        tf.train.Checkpoint(weight=weights[1]).read(str(tmp_path / "saved")).assert_consumed()
    make_step(tf.function, weights)(tf.constant([1.0]))
    assert_told(caught, rank, size, "restored:0", f" {size - 1}")
    assert_same_on_all_ranks([weight.numpy() for weight in weights])


@pytest.mark.parametrize("choice", ["error", "ignore", "perhaps"])
def test_the_setting(rank, size, monkeypatch, caught, choice):
    monkeypatch.setenv("SMDDP_UNEQUAL_WEIGHTS", choice)
    weights = [tf.Variable([1.0]), tf.Variable([float(rank)], name="other")]
    step = make_step(tf.function, weights)
    if size == 1 or choice == "ignore":
        step(tf.constant([1.0]))
    else:
        kind, text = {
            "error": (RuntimeError, "the ranks' weights differ .* 'other:0' of rank"),
            "perhaps": (ValueError, "must be 'broadcast', 'error' or 'ignore', but is 'perhaps'"),
        }[choice]
        with pytest.raises(kind, match=text):
            step(tf.constant([1.0]))
        assert_equal(weights[1].numpy(), np.array([float(rank)], np.float32), "nothing was changed")
    assert not caught, [str(each.message) for each in caught]


def made(family, seed):
    layers = family.keras.layers
    family.keras.utils.set_random_seed(seed)
    return family.keras.Sequential([layers.InputLayer((3,)), layers.Dense(2)])


def compiled_model(family, seed):
    model = made(family, seed)
    optimizer = sdp.DistributedOptimizer(family.optimizers.SGD(0.1, momentum=0.9))
    model.compile(optimizer, family.keras.losses.MeanSquaredError())
    return model


def fit(model, rank):
    features = np.random.default_rng(rank).normal(size=(8, 3)).astype(np.float32)
    model.fit(features, features[:, :2], batch_size=4, verbose=0, shuffle=False)


def told_of(caught):
    return [str(each.message) for each in caught if "the ranks' weights differ" in str(each.message)]


@each_and_tf_keras(ALL)
def test_fit(rank, size, family, caught):
    """The weights and the optimizer's own variables, which one rank may have restored alone."""
    model = compiled_model(family, 10 + rank)
    if rank == 0:
        model.optimizer.iterations.assign(5)
    fit(model, rank)
    assert len(told_of(caught)) == (rank == 0 and size > 1), told_of(caught)
    assert_same_on_all_ranks([array(weight) for weight in model.trainable_variables])
    assert int(model.optimizer.iterations) == 7


@each_and_tf_keras(ALL)
def test_fit_where_another_rank_than_0_restores_a_checkpoint(rank, size, family, caught, tmp_path):
    """It has trained longer; what it has restored gives way to what rank 0 has, and not without a word."""
    model = compiled_model(family, 10)
    if rank == size - 1 > 0:
        longer = made(family, 20)
        longer.save_weights(str(tmp_path / "it.weights.h5"))
        model.load_weights(str(tmp_path / "it.weights.h5"))
    start = [array(weight) for weight in made(family, 10).trainable_variables]
    fit(model, rank)
    assert_told(caught, rank, size, tf_name(model.trainable_variables[0]), f" {size - 1}")
    assert_same_on_all_ranks([array(weight) for weight in model.trainable_variables])
    # Two steps do not go far.
    for weight, first in zip(model.trainable_variables, start):
        assert np.abs(array(weight) - first).max() < 0.5


def tf_name(variable):
    return variable.name if isinstance(variable, tf.Variable) else variable.value.name


@each_and_tf_keras(ALL)
def test_the_setting_in_fit(rank, size, family, monkeypatch, caught):
    monkeypatch.setenv("SMDDP_UNEQUAL_WEIGHTS", "error")
    model = compiled_model(family, 10 + rank)
    before = [array(weight) for weight in model.trainable_variables]
    if size == 1:
        fit(model, rank)
        return
    with pytest.raises(RuntimeError, match=r"the ranks' weights differ .* of rank"):
        fit(model, rank)
    for weight, value in zip(model.trainable_variables, before):
        assert_equal(array(weight), value, "nothing was changed")
    assert told_of(caught) == []


@modes(eager, tf.function)
@each_and_tf_keras(ALL)
def test_a_loop_with_an_optimizer(rank, size, family, mode, caught):
    model = made(family, 10 + rank)
    optimizer = sdp.DistributedOptimizer(family.optimizers.SGD(0.1))
    if hasattr(optimizer, "build"):
        optimizer.build(model.trainable_variables)

    @mode
    def step(features):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(model(features) ** 2)
        sources = [
            each if isinstance(each, tf.Variable) else each.value for each in model.trainable_variables
        ]
        optimizer.apply_gradients(zip(tape.gradient(loss, sources), model.trainable_variables))

    for _ in range(2):
        step(tf.ones([4, 3]))
    assert_told(caught, rank, size, tf_name(model.trainable_variables[0]), others(size))
    assert_same_on_all_ranks([array(weight) for weight in model.trainable_variables])


@pytest.mark.min_ranks(2)
@pytest.mark.parametrize("choice", ["broadcast", "error"])
@each_and_tf_keras(ALL)
def test_one_rank_has_an_optimizer_with_state(rank, family, choice, caught, monkeypatch):
    """The model's weights are compared all the same. Legacy optimizers are built on all ranks by then."""
    monkeypatch.setenv("SMDDP_UNEQUAL_WEIGHTS", choice)
    model = made(family, 10 + rank * (choice == "broadcast"))
    weights = model.trainable_variables
    optimizer = family.optimizers.Adam(0.1)
    if rank == 0:
        optimizer.apply_gradients([(tf.zeros(weight.shape), weight) for weight in weights])
    optimizer = sdp.DistributedOptimizer(optimizer)
    pairs = [(tf.ones(weight.shape), weight) for weight in weights]
    differ = "the ranks' weights differ"
    text = differ if family.is_legacy else "the optimizer (Adam) has other variables on some ranks"
    if choice == "error":
        with pytest.raises(RuntimeError, match=re.escape(text)):
            optimizer.apply_gradients(pairs)
        return
    optimizer.apply_gradients(pairs)
    assert sum(text in str(each.message) for each in caught) == (rank == 0)
    assert sum(differ in str(each.message) for each in caught) == (rank == 0)
    if family.is_legacy:
        assert_same_on_all_ranks([array(weight) for weight in weights])

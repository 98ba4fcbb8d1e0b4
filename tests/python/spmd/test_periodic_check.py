"""SMDDP_CHECK_EVERY: weights that drift apart, and the rank whose gradients are not finite."""

import warnings

import numpy as np
import pytest
import tensorflow as tf
from modes import compiled, eager, meet, modes
from optimizer_families import ALL, each_and_tf_keras

import tf_smddp as sdp
from tf_smddp._guards import gradient_use

EVERY = 3


@pytest.fixture
def caught(monkeypatch):
    monkeypatch.setenv("SMDDP_CHECK_EVERY", str(EVERY))
    from tf_smddp._guards.periodic_check import _state

    monkeypatch.setattr(_state, "warned", False)
    monkeypatch.setattr(gradient_use, "_seen", gradient_use._Seen())
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield caught
    if _state.process_set is not None:  # so that it is not among the figures of other tests
        sdp.remove_process_set(_state.process_set)
        _state.forget()


def make_step(mode, weights):
    @mode
    def step(x):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(x * weights[0]) + tf.reduce_sum(weights[1])
        for weight, gradient in zip(weights, sdp.DistributedGradientTape(tape).gradient(loss, weights)):
            weight.assign_sub(0.1 * gradient)

    return step


def make_weights():
    return [tf.Variable([1.0, 2.0], name="first"), tf.Variable([3.0], name="second")]


@modes(eager, tf.function)
def test_equal_weights_pass(rank, mode, caught):
    step = make_step(mode, make_weights())
    for number in range(3 * EVERY):
        step(tf.constant([1.0 + rank, float(number)]))
    assert not caught, [str(each.message) for each in caught]


@pytest.mark.min_ranks(2)
@modes(eager, tf.function)
def test_a_drift_is_an_error_on_all_ranks(rank, size, mode, caught):
    weights = make_weights()
    step = make_step(mode, weights)
    x = tf.constant([1.0, 1.0])
    step(x)
    if rank == size - 1:
        weights[1].assign_add([1e-6])
    step(x)
    text = rf"drifted apart by step 3 .*1 of 2 variables differ, first 'second:0' of rank {size - 1} from"
    with pytest.raises((RuntimeError, tf.errors.OpError), match=text):
        step(x)
    meet()


@pytest.mark.min_ranks(2)
@modes(eager, tf.function)
@pytest.mark.parametrize("apart", [False, True])
def test_a_variable_that_another_optimizer_trains(rank, size, mode, apart, caught):
    """It was broadcast. With `apart`, a process set has reduced its gradient, on some ranks."""
    weights, other = make_weights(), tf.Variable([1.0], name="other")
    sdp.broadcast_variables([*weights, other], 0)
    step = make_step(mode, weights)
    if apart:
        process_set = sdp.add_process_set([0])
        if rank == 0:
            with tf.GradientTape() as tape:
                loss = 2.0 * other
            sdp.DistributedGradientTape(tape, process_set=process_set).gradient(loss, other)
    for _ in range(EVERY - 1):
        step(tf.constant([1.0, 1.0]))
        other.assign_add([float(rank)])
    if apart:
        step(tf.constant([1.0, 1.0]))
        sdp.remove_process_set(process_set)
        return
    text = r"drifted apart by step 3 .*1 of 3 variables differ, first 'other:0' of rank 1.* does not reduce"
    with pytest.raises((RuntimeError, tf.errors.OpError), match=text):
        step(tf.constant([1.0, 1.0]))
    meet()


@pytest.mark.parametrize("bad", ["nan", "inf", "-inf"])
@modes(eager, tf.function)
def test_the_rank_whose_gradient_is_not_finite_is_named(rank, size, mode, bad, caught):
    step = make_step(mode, make_weights())
    for number in range(EVERY):
        step(tf.constant([1.0, float(bad) if rank == size - 1 and number == EVERY - 1 else 1.0]))
    assert_named(caught, rank, size, "first:0")


def assert_named(caught, rank, size, variable):
    texts = [str(each.message) for each in caught if "before it is reduced" in str(each.message)]
    assert len(texts) == (rank == 0 and size > 1), texts
    for text in texts:
        assert f"in step 3, rank {size - 1}'s gradient of {variable!r} has a NaN or an infinity" in text, text


def made(family):
    """A model that is built."""
    layers = family.keras.layers
    family.keras.utils.set_random_seed(3)
    return family.keras.Sequential([layers.InputLayer((3,)), layers.Dense(2)])


def compiled_model(family):
    model = made(family)
    optimizer = sdp.DistributedOptimizer(family.optimizers.SGD(0.1))
    model.compile(optimizer, family.keras.losses.MeanSquaredError(), jit_compile=False)
    return model


def data_of(rank):
    return np.random.default_rng(rank).normal(size=(4 * 2 * EVERY, 3)).astype(np.float32)


@pytest.mark.min_ranks(2)
@each_and_tf_keras(ALL)
def test_a_drift_in_fit(rank, family, caught):
    model, features = compiled_model(family), data_of(rank)

    def fit():
        model.fit(features, features[:, :2], batch_size=4, verbose=0, shuffle=False)

    fit()
    if rank == 1:
        model.trainable_variables[0].assign_add(np.full((3, 2), 1e-6))
    with pytest.raises((RuntimeError, tf.errors.OpError), match=r"drifted apart by step 9 .*of rank 1 from"):
        fit()
    meet()


@pytest.mark.parametrize("bad", ["nan", "inf"])
@each_and_tf_keras(ALL)
def test_the_rank_is_named_in_fit(rank, size, family, bad, caught):
    model, features = compiled_model(family), data_of(rank)[: 4 * EVERY]
    if rank == size - 1:
        features[-1] = float(bad)
    model.fit(features, features[:, :2], batch_size=4, verbose=0, shuffle=False)
    assert_named(caught, rank, size, tf_name(model.trainable_variables[0]))


def tf_name(variable):
    return variable.name if isinstance(variable, tf.Variable) else variable.value.name


@pytest.mark.min_ranks(2)
@modes(eager, tf.function)
@each_and_tf_keras(ALL)
def test_a_drift_in_a_loop_with_an_optimizer(rank, size, family, mode, caught):
    model = made(family)
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

    features = tf.constant(data_of(rank))
    for _ in range(2 * EVERY - 1):
        step(features)
    if rank == size - 1:
        model.trainable_variables[1].assign_add([0.0, 1e-6])
    text = rf"drifted apart by step 6 .*1 of 2 variables differ, first '.*' of rank {size - 1} from"
    with pytest.raises((RuntimeError, tf.errors.OpError), match=text):
        step(features)
    meet()


@pytest.mark.cpu_only("XLA compiles a Keras model")
def test_a_compiled_step_is_not_checked_and_says_so(size, caught):
    make_step(compiled, make_weights())(tf.constant([1.0, 1.0]))
    texts = [str(each.message) for each in caught]
    assert len(texts) == (size > 1) and all("that XLA compiles as a whole" in text for text in texts), texts


def test_a_setting_that_is_no_number(monkeypatch):
    monkeypatch.setenv("SMDDP_CHECK_EVERY", "often")
    with pytest.raises(ValueError, match="must be a number of steps, or 0 for no check, but is 'often'"):
        make_step(eager, make_weights())(tf.constant([1.0, 1.0]))

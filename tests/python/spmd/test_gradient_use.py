"""Gradients that are reduced twice, or never: each gives a warning in the first step."""

import warnings

import numpy as np
import pytest
import tensorflow as tf
from modes import eager, modes
from optimizer_families import ALL, each_and_tf_keras

import tf_smddp as sdp
from tf_smddp import _gradient_use
from tf_smddp.keras import callbacks

TWICE = "reduces gradients that DistributedGradientTape has reduced"
NEVER = "but no gradient was reduced"


@pytest.fixture
def told(monkeypatch):
    """Returns the warnings that have a text, as in a new process."""
    monkeypatch.setattr(_gradient_use, "_seen", _gradient_use._Seen())
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


def fit(family, optimizer, callback):
    layers = family.keras.layers
    family.keras.utils.set_random_seed(3)
    model = family.keras.Sequential([layers.InputLayer((3,)), layers.Dense(2)])
    model.compile(optimizer, family.keras.losses.MeanSquaredError())
    features = np.ones((8, 3), np.float32)
    model.fit(features, features[:, :2], batch_size=2, epochs=2, verbose=0, callbacks=[callback])


@pytest.mark.parametrize("distributed", [False, True])
@pytest.mark.parametrize(
    "callback", [callbacks.BroadcastGlobalVariablesCallback, callbacks.MetricAverageCallback]
)
@each_and_tf_keras([family for family in ALL if not family.is_beside_keras3])
def test_fit_with_a_plain_optimizer(rank, size, family, callback, distributed, told):
    optimizer = family.optimizers.SGD(0.1)
    fit(family, sdp.DistributedOptimizer(optimizer) if distributed else optimizer, callback())
    assert len(told(NEVER)) == (rank == 0 and size > 1 and not distributed), told(NEVER)
    for text in told(NEVER):
        assert callback.__name__ in text and "Wrap the optimizer in DistributedOptimizer" in text


@pytest.mark.parametrize("reduces", [False, True])
def test_a_loop_that_only_broadcasts(rank, size, told, reduces):
    weight = tf.Variable([1.0])
    sdp.broadcast_variables([weight], 0)
    if reduces:
        sdp.allreduce(weight)
    _gradient_use._at_shutdown()
    assert len(told(NEVER)) == (rank == 0 and size > 1 and not reduces), told(NEVER)

"""N ranks with batch B are one rank with batch N·B, and all ranks have the same weights, to the bit."""

import numpy as np
import pytest
import tensorflow as tf
from values import assert_equal

import tf_smddp as sdp

pytestmark = pytest.mark.slow

BATCH, FEATURES, STEPS = 6, 5, 15


def data(size, dtype):
    """The batches of all ranks for all steps: features [step, rank, batch, feature] and targets."""
    generator = np.random.default_rng(7)
    features = generator.normal(size=(STEPS, size, BATCH, FEATURES))
    return features.astype(dtype), np.sin(features.sum(axis=-1, keepdims=True)).astype(dtype)


def make_weights(dtype):
    generator = np.random.default_rng(11)
    shapes = ((FEATURES, 8), (8,), (8, 1), (1,))
    return [tf.Variable(generator.normal(size=shape).astype(dtype)) for shape in shapes]


def loss_of(weights, features, targets):
    hidden = tf.tanh(features @ weights[0] + weights[1])
    return tf.reduce_mean((hidden @ weights[2] + weights[3] - targets) ** 2)


def train(weights, batches, wrap, mode):
    """Momentum SGD by hand, so that both Keras versions have nothing to do with it."""
    speeds = [tf.Variable(tf.zeros_like(weight)) for weight in weights]

    @mode
    def step(features, targets):
        with tf.GradientTape() as tape:
            loss = loss_of(weights, features, targets)
        for weight, speed, gradient in zip(weights, speeds, wrap(tape).gradient(loss, weights)):
            speed.assign(speed * 0.9 + gradient)
            weight.assign_sub(0.1 * speed)

    for features, targets in batches:
        step(tf.constant(features), tf.constant(targets))
    return [weight.numpy() for weight in weights]


@pytest.mark.parametrize("mode", [lambda f: f, tf.function], ids=["eager", "graph"])
@pytest.mark.parametrize(("dtype", "tolerance"), [("float64", 1e-12), ("float32", 2e-5)])
def test_equals_one_rank_with_the_large_batch(rank, size, mode, dtype, tolerance):
    features, targets = data(size, dtype)
    mine = train(
        make_weights(dtype),
        [(features[step, rank], targets[step, rank]) for step in range(STEPS)],
        sdp.DistributedGradientTape,
        mode,
    )
    whole = train(
        make_weights(dtype),
        [
            (features[step].reshape(size * BATCH, FEATURES), targets[step].reshape(size * BATCH, 1))
            for step in range(STEPS)
        ],
        lambda tape: tape,
        mode,
    )
    for weight, reference in zip(mine, whole):
        np.testing.assert_allclose(weight, reference, rtol=tolerance, atol=tolerance)
        assert_equal(sdp.broadcast(weight, 0), weight, "equal to the bit on all ranks")


def test_keras_model_and_optimizer(rank, size):
    """As SMDDP's guide writes it: other weights on each rank, made equal after the first step."""
    tf.keras.utils.set_random_seed(100 + rank)
    model = tf.keras.Sequential(
        [
            tf.keras.Input((FEATURES,)),
            tf.keras.layers.Dense(4, activation="relu"),
            tf.keras.layers.BatchNormalization(),
            tf.keras.layers.Dropout(0.3),
            tf.keras.layers.Dense(1),
        ]
    )
    optimizer = tf.keras.optimizers.Adam(0.01)
    optimizer.build(model.trainable_variables)

    @tf.function
    def step(features, targets, first_batch):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((model(features, training=True) - targets) ** 2)
        gradients = sdp.DistributedGradientTape(tape).gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables))
        if first_batch:
            sdp.broadcast_variables(model.variables, root_rank=0)
            sdp.broadcast_variables(optimizer.variables, root_rank=0)

    features, targets = data(size, "float32")
    for i in range(4):
        step(features[i, rank], targets[i, rank], i == 0)
    for weight in [*model.trainable_variables, *optimizer.variables]:
        value = tf.convert_to_tensor(weight).numpy()
        assert_equal(sdp.broadcast(value, size - 1), value, weight)
    assert int(optimizer.iterations) == 4

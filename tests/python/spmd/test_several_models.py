"""Several models, optimizers and functions in one script: gradients of one are never taken for another's."""

import numpy as np
import tensorflow as tf
from modes import MODES
from values import sum_of_ranks

import tf_smddp as sdp

RATE = 0.5


def make_optimizer():
    return sdp.DistributedOptimizer(tf.keras.optimizers.SGD(RATE))


def make_model(weight):
    """One weight, of the same shape in each model: y = weight * x."""
    model = tf.keras.Sequential([tf.keras.Input((1,)), tf.keras.layers.Dense(1, use_bias=False)])
    model.set_weights([np.full((1, 1), weight, np.float32)])
    return model


def weight_of(model):
    return float(model.get_weights()[0][0, 0])


def train(model, optimizer, x):
    """One step; the gradient of the loss is the mean of x."""
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(model(x, training=True))
    gradients = tape.gradient(loss, model.trainable_variables)
    optimizer.apply_gradients(zip(gradients, model.trainable_variables))
    return loss


def test_twins_in_functions_of_their_own(rank, size):
    """As a GAN. Each function touches other variables, so TensorFlow itself would keep no order."""
    models = [make_model(0.0), make_model(0.0)]
    optimizers = [make_optimizer(), make_optimizer()]
    for model, optimizer in zip(models, optimizers):
        optimizer.build(model.trainable_variables)

    def make(number):
        return tf.function(lambda x: train(models[number], optimizers[number], x))

    functions = [make(0), make(1)]

    @tf.function
    def step(x):
        return functions[0](x), functions[1](10.0 * x)

    for _ in range(5):
        step(tf.fill([4, 1], rank + 1.0))
    assert weight_of(models[0]) == -5 * RATE * sum_of_ranks(size) / size
    assert weight_of(models[1]) == -50 * RATE * sum_of_ranks(size) / size


@MODES
def test_two_optimizers_in_one_step(rank, size, mode):
    first, second = make_model(1.0), make_model(1.0)
    optimizers = [make_optimizer(), make_optimizer()]
    for model, optimizer in zip((first, second), optimizers):
        optimizer.build(model.trainable_variables)

    @mode
    def step(x):
        with tf.GradientTape(persistent=True) as tape:
            loss = tf.reduce_mean(first(x) + 3.0 * second(x))
        for model, optimizer in zip((first, second), optimizers):
            gradients = tape.gradient(loss, model.trainable_variables)
            optimizer.apply_gradients(zip(gradients, model.trainable_variables))

    step(tf.fill([2, 1], rank + 1.0))
    assert weight_of(first) == 1.0 - RATE * sum_of_ranks(size) / size
    assert weight_of(second) == 1.0 - 3.0 * RATE * sum_of_ranks(size) / size


def test_a_loop_that_trains(rank, size):
    model, optimizer = make_model(0.0), make_optimizer()
    optimizer.build(model.trainable_variables)

    @tf.function
    def run(x, steps):
        def body(i, total):
            return i + 1, total + train(model, optimizer, x)

        return tf.while_loop(lambda i, _: i < steps, body, (0, 0.0))[1]

    run(tf.fill([2, 1], rank + 1.0), tf.constant(6))
    assert weight_of(model) == -6 * RATE * sum_of_ranks(size) / size


def test_one_model_in_nested_functions(rank, size):
    """It is called in three functions, one of which only looks."""
    model, optimizer = make_model(0.0), make_optimizer()
    optimizer.build(model.trainable_variables)
    look = tf.function(lambda x: tf.reduce_mean(model(x)))
    once = tf.function(lambda x: train(model, optimizer, x))

    @tf.function
    def step(x):
        before = look(x)
        once(x)
        middle = look(x)
        once(2.0 * x)
        return before, middle, look(x)

    looks = step(tf.fill([2, 1], rank + 1.0))
    mean = sum_of_ranks(size) / size
    assert [float(each) for each in looks] == [-RATE * mean * (rank + 1) * steps for steps in (0, 1, 3)]


def test_an_evaluation_model_on_rank_0_only(rank, size):
    model, optimizer = make_model(0.0), make_optimizer()
    optimizer.build(model.trainable_variables)
    step = tf.function(lambda x: train(model, optimizer, x))
    for number in range(4):
        step(tf.fill([2, 1], rank + 1.0))
        if rank == 0 and number % 2 == 0:
            evaluation = make_model(0.0)
            evaluation.compile(loss="mse")
            evaluation.set_weights(model.get_weights())
            evaluation.evaluate(tf.ones([4, 1]), tf.ones([4, 1]), verbose=0)
            evaluation.predict(tf.ones([3, 1]), verbose=0)
        loss = float(sdp.oob_allreduce(weight_of(model)))
        assert loss == -(number + 1) * RATE * sum_of_ranks(size) / size

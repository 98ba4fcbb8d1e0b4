"""SyncBatchNormalization: N ranks compute what the stock layer does with the batches of all of them."""

import numpy as np
import pytest
import tensorflow as tf
from modes import MODES

import tf_smddp as sdp

pytestmark = pytest.mark.slow

Stock = tf.keras.layers.BatchNormalization
IS_KERAS_2 = not hasattr(tf.keras, "ops")
AXES = [((4,), -1), ((5, 3, 4), -1), ((3, 5, 4), 1)]


def rows_of(size):
    """Rank 1 has nothing, the others have different numbers of rows."""
    return [0 if rank == 1 else 3 + 2 * rank for rank in range(size)]


def all_rows(size, shape, mean=3.0, seed=0):
    return np.random.RandomState(seed).normal(mean, 2.0, (sum(rows_of(size)), *shape)).astype(np.float32)


def own(values, rank, size):
    rows = rows_of(size)
    return values[sum(rows[:rank]) : sum(rows[: rank + 1])]


def outputs_and_gradients(layer, mode, x, factors, mask=None):
    """The results of a training call, and the gradients of input, gamma and beta of a sum of the rows."""

    @mode
    def run(x, factors):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = layer(x, training=True, **({} if mask is None else {"mask": tf.constant(mask)}))
            loss = tf.reduce_sum(tf.cast(y, tf.float32) * factors)
        return [y, *tape.gradient(loss, [x, *layer.trainable_variables])]

    layer.build(x.shape)
    return [each.numpy() for each in run(tf.constant(x), tf.constant(factors))]


def statistics(layer):
    return [np.array(variable) for variable in layer.non_trainable_variables]


def total(gradient):
    return sdp.allreduce(gradient, 0, 1, op=sdp.ReduceOp.SUM).numpy()


def check_as_one_rank(rank, size, mode, x, mask=None, tolerance=1e-4, **arguments):
    factors = np.random.RandomState(1).normal(size=x.shape).astype(np.float32)
    ours, stock = sdp.SyncBatchNormalization(**arguments), Stock(**arguments)
    found = outputs_and_gradients(
        ours,
        mode,
        own(x, rank, size),
        own(factors, rank, size),
        None if mask is None else own(mask, rank, size),
    )
    wanted = outputs_and_gradients(stock, mode, x, factors, mask)
    for ours_, wanted_ in zip(found[:2], wanted[:2]):
        np.testing.assert_allclose(ours_, own(wanted_, rank, size), tolerance, tolerance)
    for ours_, wanted_ in zip(found[2:], wanted[2:]):
        np.testing.assert_allclose(total(ours_), wanted_, tolerance, tolerance * np.abs(wanted_).max())
    for ours_, wanted_ in zip(statistics(ours), statistics(stock)):
        np.testing.assert_allclose(ours_, wanted_, tolerance, tolerance)
        assert total(ours_).tobytes() == (ours_ * size).astype(ours_.dtype).tobytes()  # the same on all ranks


@MODES
@pytest.mark.parametrize(("shape", "axis"), AXES, ids=str)
def test_equals_the_stock_layer_with_all_rows(rank, size, mode, shape, axis):
    check_as_one_rank(rank, size, mode, all_rows(size, shape), axis=axis)


@pytest.mark.keras(2)
def test_several_axes(rank, size):
    check_as_one_rank(rank, size, tf.function, all_rows(size, (3, 5, 4)), axis=[1, 3])


@pytest.mark.keras(2)
def test_a_mask_that_the_stock_layer_ignores(rank, size):
    """Keras 2's fused op does; Keras 3 heeds all masks."""
    x = all_rows(size, (3, 5, 4))
    with pytest.warns(UserWarning, match="(?i)mask"):
        check_as_one_rank(rank, size, tf.function, x, np.zeros(x.shape[:-1], bool))
    check_as_one_rank(rank, size, tf.function, x, x[..., 0] > 3.0, fused=False)


@pytest.mark.parametrize("arguments", [{"scale": False, "center": False}, {"renorm": True}], ids=str)
def test_other_arguments(rank, size, arguments):
    check_as_one_rank(rank, size, tf.function, all_rows(size, (4,)), **arguments)


@MODES
def test_masks(rank, size, mode):
    """Nothing of the last rank counts."""
    x = all_rows(size, (6, 4))
    mask = np.random.RandomState(2).uniform(size=x.shape[:2]) < 0.6
    if size > 1:
        own(mask, size - 1, size)[:] = False
    check_as_one_rank(rank, size, mode, x, mask)


def test_a_mean_that_is_large_against_the_deviation(rank, size):
    """Sums of squares in float32 would leave nothing of the variance."""
    x = all_rows(size, (50, 4), mean=10000.0)
    layer = sdp.SyncBatchNormalization(momentum=0.0)
    layer(tf.constant(own(x, rank, size)), training=True)
    mean, variance = statistics(layer)
    np.testing.assert_allclose(mean, x.astype(np.float64).mean((0, 1)), 1e-6)
    np.testing.assert_allclose(variance, x.astype(np.float64).var((0, 1)), 1e-3)


@pytest.mark.parametrize("dtype", ["mixed_float16", "mixed_bfloat16", "float16"])
def test_16_bits(rank, size, dtype):
    """The statistics are in float32: a square of these numbers is none of float16's."""
    x = all_rows(size, (50, 4), mean=1000.0)
    x = x.astype(np.float16) if "b" not in dtype else x.astype(tf.bfloat16.as_numpy_dtype)
    layer = sdp.SyncBatchNormalization(momentum=0.0, dtype=dtype, epsilon=1e-6)
    y = layer(tf.constant(own(x, rank, size)), training=True)
    assert y.dtype == (tf.bfloat16 if "b" in dtype else tf.float16)
    exact = x.astype(np.float64)
    mean, variance = exact.mean((0, 1)), exact.var((0, 1))
    wanted = own((exact - mean) / np.sqrt(variance), rank, size)
    np.testing.assert_allclose(y.numpy().astype(np.float64), wanted, 0.02, 0.02)
    if dtype != "float16" or IS_KERAS_2:  # else Keras 3 keeps the moving statistics in 16 bits
        np.testing.assert_allclose(statistics(layer)[1], variance, 1e-3)


def test_second_derivatives(rank, size):
    x = all_rows(size, (4,)).astype(np.float32)

    def second(layer, x):
        with tf.GradientTape() as outer:
            outer.watch(x)
            with tf.GradientTape() as inner:
                inner.watch(x)
                loss = tf.reduce_sum(layer(x, training=True) ** 3)
            squares = tf.reduce_sum(inner.gradient(loss, x) ** 2)
        return outer.gradient(squares, x).numpy()

    found = second(sdp.SyncBatchNormalization(), tf.constant(own(x, rank, size)))
    wanted = own(second(Stock(), tf.constant(x)), rank, size)
    np.testing.assert_allclose(found, wanted, 1e-3, 1e-3)


def model_of(layer):
    """Two layers, and one of them twice."""
    twice = layer(name="twice")
    inputs = tf.keras.Input((3,))
    x = twice(tf.keras.layers.Dense(4, kernel_initializer=tf.keras.initializers.GlorotUniform(1))(inputs))
    x = twice(tf.keras.layers.Dense(4, "relu", kernel_initializer=tf.keras.initializers.GlorotUniform(2))(x))
    x = layer(name="once")(x)
    x = tf.keras.layers.Dense(1, kernel_initializer=tf.keras.initializers.GlorotUniform(3))(x)
    return tf.keras.Model(inputs, x)


def test_training_a_model(rank, size):
    """With gradients averaged, as one rank trains with the batches of all."""
    data = np.random.RandomState(3).normal(size=(3, size, 8, 3)).astype(np.float32)

    def train(model, batches, wrap):
        @tf.function
        def step(x):
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean((model(x, training=True) - tf.reduce_sum(x, 1, keepdims=True)) ** 2)
            for gradient, variable in zip(
                wrap(tape).gradient(loss, model.trainable_variables), model.trainable_variables
            ):
                variable.assign_sub(0.1 * gradient)

        for batch in batches:
            step(tf.constant(batch))
        return [np.array(weight) for weight in model.get_weights()]

    found = train(model_of(sdp.SyncBatchNormalization), data[:, rank], sdp.DistributedGradientTape)
    wanted = train(model_of(Stock), data.reshape(3, size * 8, 3), lambda tape: tape)
    for ours, stock in zip(found, wanted):
        np.testing.assert_allclose(ours, stock, 1e-3, 1e-4)


def test_fit(rank, size):
    """The moving statistics of a model that learns nothing; then evaluation on one rank alone."""
    data = np.random.RandomState(4).normal(1.0, 2.0, (2, size, 8, 3)).astype(np.float32)

    def fit(model, x):
        model.compile(tf.keras.optimizers.SGD(0.0), "mse")
        x = x.reshape(-1, 3)
        model.fit(x, x[:, :1], batch_size=len(x) // 2, shuffle=False, verbose=0)
        return model

    ours = fit(model_of(sdp.SyncBatchNormalization), data[:, rank])
    stock = fit(model_of(Stock), data)
    for found, wanted in zip(ours.get_weights(), stock.get_weights()):
        np.testing.assert_allclose(found, wanted, 1e-4, 1e-5)
    if rank == 0:
        x = data.reshape(-1, 3)
        np.testing.assert_allclose(ours.predict(x, verbose=0), stock.predict(x, verbose=0), 1e-3, 1e-4)
        assert ours.evaluate(x, x[:, :1], verbose=0) == pytest.approx(
            stock.evaluate(x, x[:, :1], verbose=0), 1e-3
        )
        for layer in ours.layers:
            layer.trainable = False
        ours(x, training=True)  # a frozen layer does not train
    assert sdp.allgather_object(rank) == list(range(size))


@pytest.mark.one_rank
@pytest.mark.max_ranks(1)
def test_in_a_job_of_one_rank_it_is_the_stock_layer():
    x = all_rows(1, (5, 3, 4))
    for found, wanted in zip(
        *(outputs_and_gradients(kind(), tf.function, x, x) for kind in (sdp.SyncBatchNormalization, Stock))
    ):
        assert found.tobytes() == wanted.tobytes()


def test_configuration():
    layer = sdp.SyncBatchNormalization(axis=1, momentum=0.5, name="mine")
    assert isinstance(layer, Stock)
    assert layer.get_config() == Stock(axis=1, momentum=0.5, name="mine").get_config()
    copy = tf.keras.models.clone_model(tf.keras.Sequential([tf.keras.Input((2, 3)), layer])).layers[-1]
    assert type(copy) is sdp.SyncBatchNormalization
    if IS_KERAS_2:
        with pytest.raises(ValueError, match=r"takes no virtual_batch_size, .* but got 2"):
            sdp.SyncBatchNormalization(virtual_batch_size=2)
    else:
        assert layer.supports_jit


@pytest.mark.min_ranks(2)
def test_layers_that_one_rank_has_numbered_otherwise(rank):
    """As after a model more on rank 0: Keras numbers the layers of each process."""
    for _ in range(1 + (rank == 0)):
        layer = sdp.SyncBatchNormalization()
    x = tf.constant([[1.0], [3.0]]) * (rank + 1.0)
    outputs = layer(x, training=True)
    gathered = sdp.allgather(outputs).numpy()
    np.testing.assert_allclose(gathered.mean(), 0.0, atol=1e-6)

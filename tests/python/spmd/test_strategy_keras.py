"""Keras with tf_smddp.distribute.Strategy: as one process with the global batch, and equal on all ranks."""

import numpy as np
import pytest
import tensorflow as tf
from values import assert_equal

import tf_smddp as sdp

pytestmark = pytest.mark.slow

keras = tf.keras
layers = keras.layers
KERAS_3 = hasattr(keras, "ops")
BATCH, STEPS, FEATURES = 4, 4, 6


@pytest.fixture(scope="module")
def strategy():
    return sdp.distribute.Strategy()


def data(size, rows=None):
    generator = np.random.default_rng(5)
    features = generator.normal(size=(rows or STEPS * size * BATCH, FEATURES)).astype(np.float32)
    return features, (features.sum(axis=-1, keepdims=True) > 0).astype(np.float32)


def dense(*middle):
    return keras.Sequential(
        [layers.InputLayer((FEATURES,)), layers.Dense(5, "tanh"), *middle, layers.Dense(1, "sigmoid")]
    )


def embedding():
    """Rows that several ranks have in common."""
    inputs = layers.Input((FEATURES,))
    numbers = layers.Lambda(lambda x: tf.cast(tf.abs(x) * 2.0, tf.int32), output_shape=(FEATURES,))(inputs)
    vectors = layers.Flatten()(layers.Embedding(20, 3)(numbers))
    return keras.Model(inputs, layers.Dense(1, "sigmoid", dtype="float32")(vectors))


class OwnStep(keras.Model):
    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.mean_loss = keras.metrics.Mean(name="mean_loss")

    def train_step(self, data):
        features, targets = data
        with tf.GradientTape() as tape:
            outputs = self(features, training=True)
            loss = (
                tf.reduce_mean((outputs - targets) ** 2) / tf.distribute.get_strategy().num_replicas_in_sync
            )
        gradients = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_variables))
        self.mean_loss.update_state(tf.reduce_mean((outputs - targets) ** 2))
        return {"mean_loss": self.mean_loss.result()}


def own_step():
    inputs = layers.Input((FEATURES,))
    return OwnStep(inputs, layers.Dense(1)(layers.Dense(5, "tanh")(inputs)))


def adam(**options):
    return lambda: keras.optimizers.Adam(0.05, **options)


# Keras 3 clips the gradients of each replica, with any strategy; Keras 2 those of all.
clip = {} if KERAS_3 else {"global_clipnorm": 0.5}


def case(name, model=dense, optimizer=None, policy="float32", tolerance=1e-4, marks=(), **options):
    return pytest.param(model, optimizer or adam(), policy, tolerance, options, id=name, marks=marks)


CASES = [
    case("plain"),
    case(
        "clipped-decayed-averaged", optimizer=adam(**clip, weight_decay=0.01, use_ema=True, ema_momentum=0.9)
    ),
    case("embedding", embedding, lambda: keras.optimizers.SGD(0.5, momentum=0.9)),
    case("synchronized-bn", lambda: dense(layers.BatchNormalization(synchronized=True)), tolerance=1e-3),
    case("own-train-step", own_step, metrics=None),
    case("several-steps", steps_per_execution=2),
    case("clipnorm", optimizer=adam(clipnorm=0.1), marks=[pytest.mark.long, pytest.mark.keras(2)]),
    case("accumulated", optimizer=adam(gradient_accumulation_steps=2), marks=pytest.mark.keras(3)),
    case("compiled", jit_compile=True, marks=pytest.mark.long),
    case("eager", run_eagerly=True, marks=pytest.mark.long),
    case("bfloat16", policy="mixed_bfloat16", tolerance=0.02, marks=pytest.mark.long),
    case("loss-scale", policy="mixed_float16", tolerance=0.005, marks=pytest.mark.long),
]


def made(build, optimizer, policy, **options):
    keras.utils.set_random_seed(3)
    keras.mixed_precision.set_global_policy(policy)
    try:
        model = build()
        options = {"metrics": ["accuracy", keras.metrics.AUC(name="auc")], **options}
        model.compile(optimizer(), "binary_crossentropy", **options)
    finally:
        keras.mixed_precision.set_global_policy("float32")
    return model


def weights(model):
    """Those of its layers. A metric of the model counts one update for each rank."""
    return [np.array(weight) for layer in model.layers for weight in layer.get_weights()]


def assert_same_on_all_ranks(model):
    for weight in weights(model):
        assert_equal(sdp.broadcast(weight, 0), weight, "equal to the bit on all ranks")


def assert_close(model, whole, tolerance):
    for found, wanted in zip(weights(model), weights(whole)):
        np.testing.assert_allclose(found, wanted, tolerance, tolerance)


@pytest.mark.parametrize(("build", "optimizer", "policy", "tolerance", "options"), CASES)
def test_as_one_process_with_the_global_batch(size, strategy, build, optimizer, policy, tolerance, options):
    features, targets = data(size)
    fit = {"batch_size": size * BATCH, "epochs": 2, "shuffle": False, "verbose": 0}
    whole = made(build, optimizer, policy, **{**options, "run_eagerly": True, "jit_compile": False})
    with strategy.scope():
        model = made(build, optimizer, policy, **options)
    before = weights(model)
    for found, wanted in zip(before, weights(whole)):
        assert_equal(found, wanted, "the same start")
    wanted = whole.fit(features, targets, **fit).history
    history = model.fit(features, targets, **fit).history
    assert_same_on_all_ranks(model)
    assert_close(model, whole, tolerance)
    assert any((one != other).any() for one, other in zip(before, weights(model)))
    assert history.keys() == wanted.keys()
    for name, values in history.items():
        np.testing.assert_allclose(values, wanted[name], max(tolerance, 1e-3), err_msg=name)


@pytest.mark.keras(3)  # Keras 2 checks gradients that are reduced
@pytest.mark.parametrize("way", ["fit", "loop", pytest.param("compiled", marks=pytest.mark.long)])
def test_gradients_that_overflow_on_one_rank(size, strategy, way):
    """All ranks skip the step, and halve the scale."""
    batch = size * BATCH
    features, targets = data(size)
    features[batch - 1] = 1e5  # infinite in float16
    whole = made(dense, adam(), "mixed_float16", run_eagerly=True)
    with strategy.scope():
        model = made(dense, adam(), "mixed_float16", jit_compile=way == "compiled")
    whole.fit(features, targets, batch_size=batch, shuffle=False, verbose=0)
    optimizer = model.optimizer
    if way == "loop":

        def step(inputs, wanted):
            with tf.GradientTape() as tape:
                losses = keras.losses.binary_crossentropy(wanted, model(inputs, training=True))
                loss = optimizer.scale_loss(tf.nn.compute_average_loss(losses, global_batch_size=batch))
            variables = model.trainable_variables
            optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables))

        run = tf.function(lambda *rows: strategy.run(step, args=rows))
        dataset = tf.data.Dataset.from_tensor_slices((features, targets)).batch(batch)
        for rows in strategy.experimental_distribute_dataset(dataset):
            run(*rows)
    else:
        model.fit(features, targets, batch_size=batch, shuffle=False, verbose=0)
    assert_same_on_all_ranks(model)
    assert_close(model, whole, 0.005)
    for each in (optimizer, whole.optimizer):
        assert np.array(each.iterations) == STEPS - 1
        assert np.array(each.dynamic_scale) == each.initial_scale / 2


def test_evaluate_and_predict_with_a_batch_that_is_not_full(size, strategy):
    features, targets = data(size, rows=2 * size * BATCH + 3)
    whole = made(dense, adam(), "float32", run_eagerly=True)
    with strategy.scope():
        model = made(dense, adam(), "float32")
    batch = size * BATCH
    wanted = whole.evaluate(features, targets, batch_size=batch, verbose=0, return_dict=True)
    outputs = whole.predict(features, batch_size=batch, verbose=0)
    dataset = tf.data.Dataset.from_tensor_slices((features, targets)).batch(batch)
    for arguments, options in [((features, targets), {"batch_size": batch}), ((dataset,), {})]:
        found = model.evaluate(*arguments, **options, verbose=0, return_dict=True)
        assert found == {name: pytest.approx(value, 1e-4) for name, value in wanted.items()}
        inputs = arguments[0] if options else dataset.map(lambda x, _: x)
        np.testing.assert_allclose(model.predict(inputs, **options, verbose=0), outputs, 1e-5, 1e-6)


def test_results_of_single_batches(size, strategy):
    features, targets = data(size)
    rows = size * BATCH

    def results(model):
        trained = model.train_on_batch(features[:rows], targets[:rows])
        tested = model.test_on_batch(features[rows:], targets[rows:])
        seen = []
        callback = keras.callbacks.LambdaCallback(
            on_train_batch_end=lambda batch, logs: seen.append([logs["loss"], logs["accuracy"]])
        )
        model.fit(features, targets, batch_size=rows, shuffle=False, verbose=0, callbacks=[callback])
        return [trained, tested, *seen]

    whole = made(dense, adam(), "float32", metrics=["accuracy"], run_eagerly=True)
    with strategy.scope():
        model = made(dense, adam(), "float32", metrics=["accuracy"])
    np.testing.assert_allclose(results(model), results(whole), 1e-3)


class Returned(keras.metrics.Metric):
    """`result` returns the variable itself, as in Keras's guides."""

    def __init__(self, name="rows"):
        super().__init__(name=name)
        self.rows = self.add_weight(name="rows", initializer="zeros")

    def update_state(self, y_true, y_pred, sample_weight=None):
        self.rows.assign_add(tf.cast(tf.shape(y_true)[0], tf.float32))

    def result(self):
        return self.rows


class Logs(keras.Sequential):
    """A step returns what is no result of a replica, too."""

    def train_step(self, data):
        own = {"rate": self.optimizer.learning_rate, "number": 0.5}
        if KERAS_3:  # Keras 2 adds the vectors of MirroredStrategy's replicas up
            own["vector"] = tf.constant([1.0, 2.0])
        return {**super().train_step(data), **own}


@pytest.mark.parametrize("mode", [{}, pytest.param({"run_eagerly": True}, marks=pytest.mark.long)])
def test_what_a_step_returns(size, strategy, mode):
    features, targets = data(size)
    with strategy.scope():
        model = Logs(dense().layers)
        model.compile(keras.optimizers.SGD(0.1), "mse", metrics=[Returned()], **mode)
    fit = {"batch_size": size * BATCH, "shuffle": False, "verbose": 0}
    history = model.fit(features, targets, **fit, validation_data=(features, targets)).history
    assert history["rows"] == history["val_rows"] == [len(features)]
    assert history["rate"] == [pytest.approx(0.1)]
    assert history["number"] == [0.5]
    if KERAS_3:
        assert np.array(history["vector"]).tolist() == [[1.0, 2.0]]


def test_a_model_that_is_compiled_outside_of_the_scope(size, strategy):
    """Its mean of the losses is that of all ranks."""
    features, targets = data(size)
    fit = {"batch_size": size * BATCH, "epochs": 2, "shuffle": False, "verbose": 0}
    whole = made(dense, adam(), "float32")
    with strategy.scope():
        model = made(dense, adam(), "float32")
    for each in (whole, model):
        each.compile("sgd", "mse", metrics=["mae"])
    wanted = whole.fit(features, targets, **fit).history
    assert model.fit(features, targets, **fit).history == {
        name: pytest.approx(values, 1e-4) for name, values in wanted.items()
    }


def test_a_loaded_model_goes_on(tmp_path, size, strategy):
    """As compiled as it was saved."""
    features, targets = data(size)
    fit = {"batch_size": size * BATCH, "shuffle": False, "verbose": 0}
    with strategy.scope():
        model = made(dense, adam(), "float32", metrics=["mae"])
    model.fit(features, targets, **fit)
    path = str(tmp_path / ("model.keras" if KERAS_3 else "model.h5"))  # with the state of the optimizer
    model.save(path)
    with strategy.scope():
        loaded = keras.models.load_model(path)
    wanted = model.fit(features, targets, **fit).history
    assert loaded.fit(features, targets, **fit).history == {
        name: pytest.approx(values, 1e-5) for name, values in wanted.items()
    }
    assert_same_on_all_ranks(loaded)
    assert_close(loaded, model, 1e-5)


@pytest.mark.min_ranks(2)
@pytest.mark.parametrize("mode", [lambda f: f, tf.function], ids=["eager", "graph"])
def test_a_metric_outside_of_the_scope_is_refused(strategy, mode):
    metric = keras.metrics.Mean()
    metric.update_state(2.0)
    with pytest.raises(ValueError, match=r"a step updates .*total.* Make the metric within 'with strategy"):
        mode(lambda: strategy.run(lambda: metric.update_state(4.0)))()
    assert np.array(metric.result()) == 2.0


@pytest.mark.parametrize("rows", [1, 3])
def test_fewer_rows_than_a_batch(size, strategy, rows):
    """Some ranks have fewer rows than others, or none at all."""
    features, targets = data(size, rows=rows)
    with strategy.scope():
        model = made(dense, adam(), "float32")
    before = weights(model)
    history = model.fit(features, targets, batch_size=2 * size, verbose=0).history
    assert np.isfinite(history["loss"]).all()
    assert_same_on_all_ranks(model)
    assert any((one != other).any() for one, other in zip(before, weights(model)))


@pytest.mark.parametrize("middle", ["dropout", "bn"])
def test_layers_whose_results_differ_between_ranks(size, strategy, middle):
    """Dropout, and moving averages of the batches of each rank."""
    features, targets = data(size)
    layer = {"dropout": lambda: layers.Dropout(0.5), "bn": layers.BatchNormalization}[middle]
    with strategy.scope():
        model = made(lambda: dense(layer()), adam(), "float32")
    model.fit(features, targets, batch_size=size * BATCH, verbose=0)
    for variable in model.trainable_variables:
        assert_equal(sdp.broadcast(np.array(variable), 0), np.array(variable))

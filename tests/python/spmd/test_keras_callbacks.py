"""Keras callbacks: the same start, averaged metrics, learning rates and one checkpoint, in `model.fit`."""

import time

import numpy as np
import pytest
import tensorflow as tf
from values import assert_equal

import tf_smddp.keras as sdp
from tf_smddp import DistributedGradientTape
from tf_smddp.keras.callbacks import (
    BroadcastGlobalVariablesCallback,
    LearningRateScheduleCallback,
    LearningRateWarmupCallback,
    MetricAverageCallback,
    RankZeroCheckpoint,
)

pytestmark = pytest.mark.slow

KERAS_3 = not hasattr(tf.keras.optimizers.SGD(), "lr")
FEATURES, STEPS = 3, 3


def data(seed=5):
    generator = np.random.default_rng(seed)
    return generator.normal(size=(2 * STEPS, FEATURES)).astype("float32"), np.ones((2 * STEPS, 1), "float32")


def fit(model, callbacks, seed=5, **options):
    features, targets = data(seed)
    options = {"batch_size": 2, "shuffle": False, "verbose": 0, **options}
    return model.fit(features, targets, callbacks=callbacks, **options)


def numpy(variables):
    return [tf.convert_to_tensor(variable).numpy() for variable in variables]


def of_root(arrays, root):
    return [sdp.broadcast(array, root).numpy() for array in arrays]


def assert_all_equal(found, wanted):
    assert len(found) == len(wanted) > 0
    for one, other in zip(found, wanted):
        assert_equal(one, other, "the root's")


class At(tf.keras.callbacks.Callback):
    """Calls a function with the model at the beginning of each batch; keeps what it returns."""

    def __init__(self, look):
        super().__init__()
        self.look, self.found = look, []

    def on_train_batch_begin(self, batch, logs=None):
        self.found.append(self.look(self.model))


class FirstLoss(tf.keras.callbacks.Callback):
    loss = None

    def on_train_batch_end(self, batch, logs=None):
        self.loss = logs["loss"] if batch == 0 else self.loss


def built_model(rank):
    tf.keras.utils.set_random_seed(rank)
    layers = tf.keras.layers
    return tf.keras.Sequential(
        [
            tf.keras.Input((FEATURES,)),
            layers.Dense(4),
            layers.BatchNormalization(),
            layers.Dropout(0.5),
            layers.Dense(1),
        ]
    )


def dense_model(rank):
    tf.keras.utils.set_random_seed(rank)
    return tf.keras.Sequential([tf.keras.Input((FEATURES,)), tf.keras.layers.Dense(1)])


def one_weight():
    return tf.keras.Sequential([tf.keras.Input((1,)), tf.keras.layers.Dense(1, use_bias=False)])


OPTIMIZERS = {
    "Adam": lambda: tf.keras.optimizers.Adam(),
    "LossScaleOptimizer": lambda: tf.keras.mixed_precision.LossScaleOptimizer(
        tf.keras.optimizers.SGD(momentum=0.9)
    ),
}
if not KERAS_3:
    OPTIMIZERS["legacy"] = lambda: tf.keras.optimizers.legacy.SGD(momentum=0.9)
    OPTIMIZERS["legacy LossScaleOptimizer"] = lambda: tf.keras.mixed_precision.LossScaleOptimizer(
        tf.keras.optimizers.legacy.Adam()
    )


def state_of(optimizer):
    variables = optimizer.variables
    return numpy(variables() if callable(variables) else variables)


@pytest.mark.all_cases
@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_the_root_s_start_before_the_first_batch(rank, size, kind):
    model, optimizer = built_model(rank), OPTIMIZERS[kind]()
    model.compile(optimizer, "mse", run_eagerly=True)
    root = size - 1
    initial = numpy(model.weights)
    look = At(lambda model: (numpy(model.weights), state_of(model.optimizer)))
    fit(model, [BroadcastGlobalVariablesCallback(root), look])
    assert_all_equal(look.found[0][0], of_root(initial, root))
    if rank != root:
        assert np.any(look.found[0][0][0] != initial[0])
    # The optimizer had its variables, and nothing was in them yet.
    assert len(look.found[0][1]) == len(state_of(optimizer)) > 2
    assert int(optimizer.iterations) == STEPS


def test_an_optimizer_that_only_the_root_has_restored(rank, size, tmp_path):
    model, optimizer = built_model(rank), tf.keras.optimizers.Adam(0.001 if rank else 0.25)
    model.compile(optimizer, "mse", run_eagerly=True)
    checkpoint = tf.train.Checkpoint(model=model, optimizer=optimizer)
    if rank == 0:
        fit(model, [])
        path = checkpoint.write(str(tmp_path / "checkpoint"))
        model, optimizer = built_model(100), tf.keras.optimizers.Adam()
        model.compile(optimizer, "mse", run_eagerly=True)
        tf.train.Checkpoint(model=model, optimizer=optimizer).read(path)
    look = At(lambda model: numpy(model.weights) + state_of(model.optimizer))
    fit(model, [BroadcastGlobalVariablesCallback(0), look])
    assert int(optimizer.iterations) == 2 * STEPS
    assert float(optimizer.learning_rate) == 0.25
    assert_all_equal(look.found[0], of_root(look.found[0], 0))


def test_a_loss_scale_that_only_the_root_has_restored(rank, size):
    model, optimizer = built_model(rank), OPTIMIZERS["LossScaleOptimizer"]()
    model.compile(optimizer, "mse", run_eagerly=True)
    if rank == 0:
        optimizer.build(model.trainable_variables)
        (optimizer.dynamic_scale if KERAS_3 else optimizer._loss_scale.current_loss_scale).assign(64.0)
    fit(model, [BroadcastGlobalVariablesCallback()])
    assert float(optimizer.dynamic_scale if KERAS_3 else optimizer.loss_scale) == 64.0


def test_each_rank_keeps_dropout_of_its_own(rank, size):
    """Keras 3 has the state of its seed generators in model.variables, Keras 2 has none there."""
    model = built_model(rank)
    model.compile("sgd", "mse", run_eagerly=True)
    weights = {id(variable) for variable in model.weights}
    seeds = [variable for variable in model.variables if id(variable) not in weights]
    assert len(seeds) == (1 if KERAS_3 else 0)
    before = numpy(seeds)
    look = At(lambda model: numpy(seeds))
    fit(model, [BroadcastGlobalVariablesCallback(), look])
    if seeds:
        assert_all_equal(look.found[0], before)
        if rank > 0:
            assert np.any(before[0] != of_root(before, 0)[0])
        else:
            of_root(before, 0)


@pytest.mark.keras(2)  # Keras 3 takes no optimizers of tf.compat.v1.train
def test_an_optimizer_of_tf_compat_v1(rank):
    """It makes its variables in the first step, after which all are broadcast once more.

    The order of their names differs between the ranks: rank 1's "dense_10" is before its "dense_9".
    """
    tf.keras.backend.clear_session()
    for _ in range(8 + rank):
        tf.keras.layers.Dense(1)
    model = built_model(rank)
    model.compile(tf.compat.v1.train.MomentumOptimizer(0.0, 0.9), "mse")
    initial = numpy(model.weights)
    look = At(lambda model: numpy(model.weights))
    fit(model, [BroadcastGlobalVariablesCallback(0), look])
    assert_all_equal(look.found[0], of_root(initial, 0))
    slots = numpy(model.optimizer.optimizer.variables())
    assert len(slots) == len(model.trainable_variables)


class Subclassed(tf.keras.Model):
    def __init__(self):
        super().__init__()
        self.hidden, self.out = tf.keras.layers.Dense(4, "tanh"), tf.keras.layers.Dense(1)

    def call(self, features, training=False):
        return self.out(self.hidden(features))


def sequential_without_input():
    return tf.keras.Sequential([tf.keras.layers.Dense(4, "tanh"), tf.keras.layers.Dense(1)])


@pytest.mark.parametrize("make", [Subclassed, sequential_without_input])
@pytest.mark.parametrize("run_eagerly", [False, True])
def test_a_model_that_the_first_batch_builds(rank, size, make, run_eagerly):
    """The weights do not change at a rate of 0, so they are what the first loss must have been made of."""
    tf.keras.utils.set_random_seed(rank)
    model = make()
    model.compile(tf.keras.optimizers.SGD(0.0, momentum=0.9), "mse", run_eagerly=run_eagerly)
    first = FirstLoss()
    callback = BroadcastGlobalVariablesCallback(size - 1)
    fit(model, [callback, first])
    assert_all_equal(numpy(model.weights), of_root(numpy(model.weights), size - 1))
    features, targets = data()
    wanted = np.mean((model(features[:2]).numpy() - targets[:2]) ** 2)
    assert first.loss == pytest.approx(wanted, rel=1e-5)
    # The wrapper of the train_step is gone, and it was not broadcast twice.
    assert "train_step" not in vars(model)
    fit(model, [callback, first])


def test_a_model_that_only_the_root_has_built(rank, size):
    """Rank 0 has loaded it, say; the others make theirs in the first batch."""
    tf.keras.utils.set_random_seed(rank)
    model = Subclassed()
    if rank == 0:
        model(data()[0])
    model.compile(tf.keras.optimizers.SGD(0.0), "mse")
    first = FirstLoss()
    fit(model, [BroadcastGlobalVariablesCallback(0), first])
    assert_all_equal(numpy(model.weights), of_root(numpy(model.weights), 0))
    assert first.loss == pytest.approx(float(sdp.broadcast(np.float64(first.loss), 0)), rel=1e-5)


class TwoModels(tf.keras.Model):
    """As a GAN: parts that are trained, and no call."""

    def __init__(self, **options):
        super().__init__()
        self.one, self.other = (tf.keras.Sequential([tf.keras.layers.Dense(1)]) for _ in range(2))
        if options.pop("built", False):
            self.one.build((None, FEATURES))
            self.other.build((None, FEATURES))

    def train_step(self, batch):
        features, targets = batch
        return {"loss": tf.reduce_mean((self.one(features) + self.other(features) - targets) ** 2)}


def test_a_normalization_that_each_rank_has_adapted(rank, size):
    """It computes with a copy of its weights."""
    normalization = tf.keras.layers.Normalization()
    normalization.adapt(np.arange(12.0, dtype=np.float32).reshape(4, FEATURES) + 10 * rank)
    model = tf.keras.Sequential([tf.keras.Input((FEATURES,)), normalization, tf.keras.layers.Dense(1)])
    model.compile(sdp.DistributedOptimizer(tf.keras.optimizers.SGD(0.0)), "mse")
    root = size - 1
    root_s = of_root(numpy([model(data()[0])]), root)
    fit(model, [BroadcastGlobalVariablesCallback(root)])
    assert_all_equal(numpy([model(data()[0])]), root_s)


@pytest.mark.keras(2)
def test_a_list_of_optimizers(rank):
    """As Keras 2's WideDeepModel has."""
    parts = [tf.keras.experimental.LinearModel(), tf.keras.Sequential([tf.keras.layers.Dense(1)])]
    model = tf.keras.experimental.WideDeepModel(*parts)
    optimizers = [tf.keras.optimizers.SGD(0.1), tf.keras.optimizers.Adam(0.1)]
    model.compile([sdp.DistributedOptimizer(each) for each in optimizers], "mse")
    features, targets = data(rank)
    callbacks = [BroadcastGlobalVariablesCallback(0), MetricAverageCallback()]
    model.fit([features, features], targets, batch_size=2, epochs=2, verbose=0, callbacks=callbacks)
    state = [*model.weights, *(variable for each in optimizers for variable in each.variables)]
    assert len(state) > 8
    assert_all_equal(numpy(state), of_root(numpy(state), 0))


@pytest.mark.keras(2)  # Keras 3 does not look at the time
def test_keras_does_not_call_it_slow(monkeypatch):
    """Keras compares the times of the first batches, in one of which this callback broadcasts."""
    warned = []
    monkeypatch.setattr(tf.get_logger(), "warning", lambda text, *_: warned.append(text))
    callback = BroadcastGlobalVariablesCallback(0)
    slow, broadcast = [], callback._broadcast
    callback._broadcast = lambda variables: (broadcast(variables), slow.append(time.sleep(0.5)))
    model = dense_model(0)
    model.compile(sdp.DistributedOptimizer(tf.keras.optimizers.SGD(0.1)), "mse")
    fit(model, [callback])
    assert slow
    assert not [text for text in warned if "is slow" in text]


@pytest.mark.parametrize("built", [True, False])
def test_a_model_without_a_call(rank, size, built):
    tf.keras.utils.set_random_seed(rank)
    model = TwoModels(built=built)
    model.compile(run_eagerly=True)
    first = FirstLoss()
    fit(model, [BroadcastGlobalVariablesCallback(), first])
    weights = numpy(model.one.weights + model.other.weights)
    assert_all_equal(weights, of_root(weights, 0))
    features, targets = data()
    wanted = float(tf.reduce_mean((model.one(features[:2]) + model.other(features[:2]) - targets[:2]) ** 2))
    if built or rank == 0:
        assert first.loss == pytest.approx(wanted, rel=1e-5)
    else:  # the first batch was this rank's own: documented
        assert first.loss != pytest.approx(wanted, rel=1e-5)


class Reduced(Subclassed):
    """Its gradients are averaged over the ranks."""

    def train_step(self, batch):
        features, targets = batch
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((self(features, training=True) - targets) ** 2)
        gradients = DistributedGradientTape(tape).gradient(loss, self.trainable_variables)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_variables))
        return {"loss": loss}


def test_a_whole_fit(rank, size, tmp_path):
    """All callbacks at once; other weights and data on each rank, equal to the bit at the end."""
    tf.keras.utils.set_random_seed(rank)
    model = Reduced()
    model.compile(tf.keras.optimizers.SGD(0.1, momentum=0.9), jit_compile=False)
    callbacks = [
        BroadcastGlobalVariablesCallback(0),
        MetricAverageCallback(),
        LearningRateWarmupCallback(0.1, warmup_epochs=2),
        LearningRateScheduleCallback(0.1, 0.5, start_epoch=2),
        RankZeroCheckpoint(
            str(tmp_path / "best.weights.h5"), "loss", save_best_only=True, save_weights_only=True
        ),
    ]
    history = fit(model, callbacks, seed=rank, epochs=3).history
    state = numpy(model.weights) + state_of(model.optimizer)
    assert_all_equal(state, of_root(state, 0))
    for values in history.values():
        assert_equal(values, sdp.broadcast(np.array(values), 0).numpy(), history)
    assert history["learning_rate" if KERAS_3 else "lr"] == pytest.approx([(1 + 1 / size) / 20, 0.1, 0.05])
    assert (tmp_path / "best.weights.h5").exists() == (rank == 0)


def test_metric_average(rank, size):
    average = sum(range(size)) / size
    logs = {
        "loss": float(rank),
        "val_loss": np.float32(rank + 0.5),
        "count": rank,
        "tensor": tf.constant(rank, tf.float16),
        "by_class": np.array([rank, 1.0]),
    }
    MetricAverageCallback().on_epoch_end(0, logs)
    assert logs.pop("by_class").tolist() == pytest.approx([average, 1.0])
    assert logs == pytest.approx(
        {"loss": average, "val_loss": average + 0.5, "count": average, "tensor": average}
    )
    assert all(type(value) is float for value in logs.values())
    MetricAverageCallback().on_epoch_end(0, {})
    MetricAverageCallback().on_epoch_end(0)


def test_metric_average_in_a_v1_graph(rank, size):
    logs = {"loss": float(rank)}
    with tf.Graph().as_default():
        MetricAverageCallback().on_epoch_end(0, logs)
        assert not tf.compat.v1.get_default_graph().get_operations()
    assert logs == {"loss": sum(range(size)) / size}


def test_metric_average_in_fit(rank, size):
    model = dense_model(rank)
    model.compile("sgd", "mse", metrics=["mae"])
    history = fit(model, [MetricAverageCallback()], validation_data=data(rank), epochs=2).history
    mine = model.evaluate(*data(rank), verbose=0, return_dict=True)
    for key in ("loss", "mae"):
        wanted = float(sdp.allreduce(np.float64(mine[key]), 0, 1))
        assert history[f"val_{key}"][-1] == pytest.approx(wanted, rel=1e-5)


@pytest.mark.min_ranks(2)
def test_ranks_with_different_metrics(rank):
    logs = {"loss": 1.0, f"of rank {rank}": 2.0}
    with pytest.raises(ValueError, match=r"rank 0 has \['of rank 0'\], rank 1 has \['of rank 1'\]"):
        MetricAverageCallback().on_epoch_end(0, logs)


def test_a_metric_that_is_no_number():
    with pytest.raises(TypeError, match="the log 'note' is 'text'"):
        MetricAverageCallback().on_epoch_end(0, {"loss": 1.0, "note": "text"})


def rates(callbacks, epochs):
    model = one_weight()
    model.compile(tf.keras.optimizers.SGD(123.0, momentum=0.9), "mse")
    look = At(lambda model: float(model.optimizer.learning_rate))
    ones = np.ones((STEPS, 1))
    model.fit(ones, ones, 1, epochs, 0, [*callbacks, look])
    return look.found


def test_warmup(size, capfd):
    found = rates([LearningRateWarmupCallback(0.8, warmup_epochs=2, verbose=1)], 3)
    steps = 2 * STEPS
    wanted = [0.8 / size + (0.8 - 0.8 / size) * (i + 1) / steps for i in range(steps)]
    assert found == pytest.approx(wanted + [0.8] * STEPS)
    assert "Epoch 2: the warm-up is over, the learning rate is 0.8." in capfd.readouterr().out


def test_schedules():
    constant = LearningRateScheduleCallback(0.8, 0.5, start_epoch=1, end_epoch=2)
    stairs = LearningRateScheduleCallback(0.8, lambda epoch: 0.1**epoch, start_epoch=2)
    assert rates([constant, stairs], 4) == pytest.approx(
        [123.0] * STEPS + [0.4] * STEPS + [0.008] * STEPS + [0.0008] * STEPS
    )
    smooth = LearningRateScheduleCallback(
        0.8, lambda epoch: 1 / (1 + epoch), staircase=False, steps_per_epoch=4
    )
    assert rates([smooth], 1) == pytest.approx([0.8 / (1 + i / 4) for i in range(STEPS)])


def test_bad_learning_rate_arguments():
    with pytest.raises(ValueError, match=r"initial_lr as a positive number, but got 0"):
        LearningRateScheduleCallback(0, 1.0)
    with pytest.raises(ValueError, match=r"warmup_epochs >= 0, but got -1"):
        LearningRateWarmupCallback(0.1, warmup_epochs=-1)
    callback = LearningRateWarmupCallback(0.1)
    callback.set_params({"steps": None})
    with pytest.raises(ValueError, match=r"does not know how many batches.* Give it steps_per_epoch"):
        callback.on_train_batch_begin(0)


MOMENTUM_OPTIMIZERS = {
    "SGD": lambda: tf.keras.optimizers.SGD(1.0, momentum=0.5),
    "LossScaleOptimizer": lambda: tf.keras.mixed_precision.LossScaleOptimizer(
        tf.keras.optimizers.SGD(1.0, momentum=0.5), initial_scale=1.0
    ),
}
if not KERAS_3:
    MOMENTUM_OPTIMIZERS["legacy"] = lambda: tf.keras.optimizers.legacy.SGD(1.0, momentum=0.5)


@pytest.mark.all_cases
@pytest.mark.parametrize("kind", MOMENTUM_OPTIMIZERS)
@pytest.mark.parametrize("correction", [True, False])
def test_momentum_correction(kind, correction):
    """One weight, whose gradient is 1 in each step; the rate is halved in the second epoch (of one step)."""
    model = one_weight()
    model.compile(MOMENTUM_OPTIMIZERS[kind](), lambda _, prediction: prediction)
    model.set_weights([np.zeros((1, 1))])
    halve = LearningRateScheduleCallback(1.0, lambda epoch: 0.5**epoch, momentum_correction=correction)
    look = At(lambda model: float(model.get_weights()[0][0, 0]))
    model.fit(np.ones((1, 1)), np.ones((1, 1)), epochs=3, verbose=0, callbacks=[halve, look])
    factor = 0.5 if correction else 1.0
    speeds = [-1.0]
    speeds.append(0.5 * factor * speeds[0] - 0.5)
    assert look.found == pytest.approx([0.0, speeds[0], speeds[0] + speeds[1]])


@pytest.mark.parametrize("save_freq", ["epoch", 2])
def test_checkpoint(rank, size, tmp_path, save_freq):
    model = dense_model(rank)
    model.compile("sgd", "mse")
    path = tmp_path / "folder" / "{epoch}.weights.h5"
    callback = RankZeroCheckpoint(str(path), save_weights_only=True, save_freq=save_freq)
    fit(model, [callback], epochs=2)
    names = sorted(found.name for found in tmp_path.rglob("*.h5"))
    assert names == (["1.weights.h5", "2.weights.h5"] if rank == 0 else [])
    assert (tmp_path / "folder").exists() == (rank == 0)


def test_device_is_ignored_with_a_warning():
    from tf_smddp._base import arguments

    arguments._warned_of_device = False
    with pytest.warns(UserWarning, match="device='/gpu:0' is ignored"):
        BroadcastGlobalVariablesCallback(0, device="/gpu:0")


@pytest.mark.min_ranks(2)
@pytest.mark.parametrize(
    ("make", "collective"),
    [
        (MetricAverageCallback, "allgather 'MetricAverageCallback/keys'"),
        (lambda: BroadcastGlobalVariablesCallback(0), "allreduce 'BroadcastGlobalVariablesCallback/weights'"),
    ],
    ids=["metrics", "weights"],
)
def test_different_numbers_of_batches(rank, size, make, collective):
    """The last rank is at the end of its epoch, where the others are in a step."""
    model = tf.keras.Sequential([tf.keras.Input((FEATURES,)), tf.keras.layers.Dense(1)])
    model.compile(sdp.DistributedOptimizer(tf.keras.optimizers.SGD(0.1)), "mse")
    steps = 2 if rank == size - 1 else 3
    batches = tf.data.Dataset.from_tensors((tf.ones([2, FEATURES]), tf.ones([2, 1]))).repeat(steps)
    text = (
        rf"rank {size - 1} has {collective}.*"
        rf"rank {size - 1} had fewer batches.*drop_remainder=True.*callbacks\.Join\(\)"
    )
    with pytest.raises(tf.errors.OpError, match=text):
        model.fit(batches, callbacks=[make()], verbose=0)
    sdp.barrier()

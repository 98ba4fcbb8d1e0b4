"""DistributedOptimizer(shard_state=True): as without it, with a part of the state on each rank."""

import copy
import os

import h5py
import numpy as np
import pytest
import tensorflow as tf
from optimizer_families import ALL, applier, array, each
from values import assert_equal

import tf_smddp as sdp

keras = tf.keras
layers = keras.layers
KERAS_3 = hasattr(keras, "ops")
BATCH, STEPS, FEATURES = 8, 4, 65


def model():
    """Weights that are cut (65 x 77 is odd), small ones, and ones with a constraint."""
    return keras.Sequential(
        [
            layers.InputLayer((FEATURES,)),
            layers.Dense(77, "tanh"),
            layers.BatchNormalization(),
            layers.Dense(64, "tanh", kernel_constraint="non_neg"),
            layers.Dense(80, "tanh", name="last"),
            layers.Dense(1, name="sum"),
        ]
    )


def data(seed):
    generator = np.random.default_rng(seed)
    features = generator.normal(size=(BATCH * STEPS, FEATURES)).astype(np.float32)
    return features, features.sum(axis=-1, keepdims=True)


def values(found):
    return [np.array(weight) for weight in found]


def case(name, make, marks=(), tolerance=0, **options):
    return pytest.param(make, tolerance, options, id=name, marks=marks)


def excluding(name):
    """AdamW that does not decay the weights of a layer."""
    optimizer = optimizers.AdamW(0.01, weight_decay=0.1)
    optimizer.exclude_from_weight_decay(var_names=[name])
    return optimizer


def loss_scale(optimizer):
    return (optimizers if KERAS_3 else keras.mixed_precision).LossScaleOptimizer(optimizer)


optimizers = keras.optimizers
clipped = 1e-6  # norms are sums in another order
CASES = [
    case("sgd", lambda: optimizers.SGD(0.01)),
    case("momentum", lambda: optimizers.SGD(0.01, momentum=0.9, nesterov=True), marks=pytest.mark.long),
    case("adam", lambda: optimizers.Adam(0.01, amsgrad=True), marks=pytest.mark.gpu),
    case(
        "adam-clipnorm",
        lambda: optimizers.Adam(0.01, clipnorm=0.01),
        tolerance=clipped,
        marks=pytest.mark.long,
    ),
    case("adam-global-clipnorm", lambda: optimizers.Adam(0.01, global_clipnorm=0.01), tolerance=clipped),
    case("adam-clipvalue", lambda: optimizers.Adam(0.01, clipvalue=0.001), marks=pytest.mark.long),
    case(
        "adam-ema",
        lambda: optimizers.Adam(0.01, use_ema=True, ema_overwrite_frequency=3),
        marks=pytest.mark.long,
    ),
    case(
        "schedule",
        lambda: optimizers.Adam(optimizers.schedules.ExponentialDecay(0.01, 2, 0.5)),
        marks=pytest.mark.long,
    ),
    case("adamw-exclusion", lambda: excluding("last")),
    case("loss-scale", lambda: loss_scale(optimizers.Adam(0.01)), policy="mixed_float16", tolerance=0.02),
    case("eager", lambda: optimizers.Adam(0.01), run_eagerly=True, marks=pytest.mark.long),
    case("several-steps", lambda: optimizers.Adam(0.01), steps_per_execution=2, marks=pytest.mark.long),
    case(
        "accumulation",
        lambda: optimizers.Adam(0.01, gradient_accumulation_steps=2),
        marks=[pytest.mark.keras(3), pytest.mark.long],
        tolerance=1e-5,
    ),
    case(
        "accumulation-ema",  # averages overwrite the weights in a step that does not update them
        lambda: optimizers.Adam(
            0.01, gradient_accumulation_steps=2, use_ema=True, ema_momentum=0.5, ema_overwrite_frequency=3
        ),
        marks=[pytest.mark.keras(3), pytest.mark.long],
        tolerance=1e-5,
    ),
    case("adafactor", lambda: optimizers.Adafactor(0.01), tolerance=1e-6, marks=pytest.mark.gpu),
    case(
        "muon",
        lambda: optimizers.Muon(0.01),
        tolerance=1e-6,
        marks=[pytest.mark.keras(3), pytest.mark.long],
    ),
    case("lamb", lambda: optimizers.Lamb(0.01), marks=[pytest.mark.keras(3), pytest.mark.long]),
    case(
        "lamb-graph",
        lambda: optimizers.Lamb(0.01),
        jit_compile=False,
        marks=[pytest.mark.keras(3), pytest.mark.long],
    ),
    *(
        # Vector and scalar instructions, which a part has at other places, may round otherwise.
        case(name, lambda name=name: getattr(optimizers, name)(0.01), tolerance=1e-5, marks=pytest.mark.long)
        for name in ("RMSprop", "Adamax", "Nadam", "Adagrad", "Adadelta", "Ftrl", "Lion")
    ),
]


def trained(make, rank, shard_state, policy="float32", **options):
    """A model after two epochs, and their losses."""
    keras.utils.set_random_seed(3)
    keras.mixed_precision.set_global_policy(policy)
    try:
        found = model()
        optimizer = sdp.DistributedOptimizer(make(), shard_state=shard_state)
        found.compile(optimizer, "mse", **options)
    finally:
        keras.mixed_precision.set_global_policy("float32")
    history = found.fit(*data(rank), batch_size=BATCH, epochs=2, shuffle=False, verbose=0).history
    return found, history["loss"]


@pytest.mark.parametrize(("make", "tolerance", "options"), CASES)
def test_fit_as_with_whole_state(rank, make, tolerance, options):
    whole, losses = trained(make, rank, False, **options)
    sharded, sharded_losses = trained(make, rank, True, **options)
    np.testing.assert_allclose(sharded_losses, losses, max(tolerance, 1e-6))
    for one, other in zip(values(whole.trainable_variables), values(sharded.trainable_variables)):
        np.testing.assert_allclose(one, other, tolerance, tolerance)
        assert_equal(sdp.broadcast(other, 0), other, "equal to the bit on all ranks")


def slots(optimizer):
    return values(variable for variable in optimizer.variables if len(variable.shape))


def num_elements(optimizer):
    return sum(slot.size for slot in slots(optimizer))


def test_the_state_is_a_part(rank, size):
    whole, _ = trained(lambda: optimizers.Adam(0.01), rank, False)
    sharded, _ = trained(lambda: optimizers.Adam(0.01), rank, True)
    cut = 2 * (65 * 77 + 64 * 80)
    small = num_elements(whole.optimizer) - cut
    assert num_elements(sharded.optimizer) - small <= -(-cut // size) + 2 * size


@pytest.mark.parametrize("way", ["eager", "function", pytest.param("jit", marks=pytest.mark.long)])
def test_loop(rank, way):
    """`apply_gradients` outside `fit`, and weights that are assigned between steps."""
    found = []
    for shard_state in (False, True):
        keras.utils.set_random_seed(3)
        trained, optimizer = model(), optimizers.Adam(0.01)
        optimizer = sdp.DistributedOptimizer(optimizer, shard_state=shard_state)

        def step(x, y, trained=trained, optimizer=optimizer):
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean((trained(x) - y) ** 2)
            gradients = tape.gradient(loss, trained.trainable_variables)
            optimizer.apply_gradients(zip(gradients, trained.trainable_variables))

        if way != "eager":
            optimizer.build(trained.trainable_variables)
            step = tf.function(step, jit_compile=way == "jit")
        for number in range(4):
            step(*map(tf.constant, data(10 * number + rank)))
            if number == 1:
                for variable in trained.trainable_variables:
                    variable.assign(variable * 0.5)
        found.append(values(trained.trainable_variables))
    for one, other in zip(*found):
        np.testing.assert_allclose(one, other, 1e-6 if way == "jit" else 0)


@each([family for family in ALL if not family.is_legacy])
def test_variables_without_a_model(rank, family):
    start, found = np.random.default_rng(3).normal(size=(65, 77)), []
    for shard_state in (False, True):
        variables = [family.variable(start)]
        optimizer = sdp.DistributedOptimizer(family.optimizers.Adam(0.01), shard_state=shard_state)
        optimizer.build(variables)
        apply = applier(optimizer, variables, tf.function)
        for step in range(3):
            apply([tf.random.stateless_normal(start.shape, [rank, step])])
        found.append(array(variables[0]))
    assert_equal(*found)


@pytest.mark.keras(2)
def test_several_passes(rank):
    found = []
    for shard_state in (False, True):
        keras.utils.set_random_seed(3)
        trained = model()
        optimizer = sdp.DistributedOptimizer(
            optimizers.Adam(0.01), backward_passes_per_step=2, shard_state=shard_state
        )
        trained.compile(optimizer, "mse")
        trained.fit(*data(rank), batch_size=BATCH, shuffle=False, verbose=0)
        found.append(values(trained.trainable_variables))
    for one, other in zip(*found):
        assert_equal(one, other)


def is_infinite_on_the_last(rank, size):
    features, targets = data(rank)
    if rank == size - 1:
        features[BATCH : 2 * BATCH] = np.inf
    return features, targets


def test_a_step_that_is_not_finite_on_one_rank(rank, size):
    """LossScaleOptimizer skips it on all ranks."""
    keras.utils.set_random_seed(3)
    trained = model()
    inner = optimizers.SGD(0.01, momentum=0.9)
    trained.compile(sdp.DistributedOptimizer(loss_scale(inner), shard_state=True), "mse")
    trained.fit(*is_infinite_on_the_last(rank, size), batch_size=BATCH, shuffle=False, verbose=0)
    for weight in values(trained.trainable_variables):
        assert np.isfinite(weight).all()
        assert_equal(sdp.broadcast(weight, 0), weight, "equal to the bit on all ranks")


def make_adam():
    return optimizers.Adam(0.01)


def make_lamb():
    return optimizers.Lamb(0.01)


def make_adafactor():
    return optimizers.Adafactor(0.01)


@pytest.mark.parametrize(
    "make",
    [make_adam, make_adafactor, pytest.param(make_lamb, marks=[pytest.mark.keras(3), pytest.mark.long])],
)
def test_a_checkpoint_has_the_whole_state(rank, tmp_path, make):
    """It is read by a plain optimizer, and by a sharded one. A rank may have another one for itself."""
    another = sdp.DistributedOptimizer(make(), shard_state=True)
    if rank == 0:
        another.build(model().trainable_variables)
    sharded, _ = trained(make, rank, True)
    whole, _ = trained(make, rank, False)
    folder = sdp.broadcast_object(str(tmp_path))
    sdp.Checkpoint(folder, model=sharded, optimizer=sharded.optimizer).save(1)
    for optimizer in (make(), sdp.DistributedOptimizer(make(), shard_state=True)):
        keras.utils.set_random_seed(4)
        other = model()
        other.compile(optimizer, "mse")
        optimizer.build(other.trainable_variables)
        assert sdp.Checkpoint(folder, model=other, optimizer=optimizer).restore() == 1
        wanted = slots((whole if optimizer.__class__ is type(optimizer) else sharded).optimizer)
        for one, two in zip(slots(optimizer), wanted):
            assert_equal(one, two)
        for one, two in zip(values(other.trainable_variables), values(sharded.trainable_variables)):
            assert_equal(one, two)


def test_a_restore_before_the_first_step(rank, tmp_path):
    """Slots that do not exist yet get their parts when they are made, and the training goes on as before."""
    folder = sdp.broadcast_object(str(tmp_path))
    sharded, _ = trained(make_adam, rank, True)
    sdp.Checkpoint(folder, model=sharded, optimizer=sharded.optimizer).save(1)
    keras.utils.set_random_seed(4)
    other = model()
    other.compile(sdp.DistributedOptimizer(make_adam(), shard_state=True), "mse")
    sdp.Checkpoint(folder, model=other, optimizer=other.optimizer).restore()
    for trained_on in (sharded, other):
        trained_on.fit(*data(rank + 5), batch_size=BATCH, shuffle=False, verbose=0)
    for one, two in zip(values(sharded.trainable_variables), values(other.trainable_variables)):
        assert_equal(one, two)


def make_loss_scaled():
    return loss_scale(optimizers.Adam(0.01))


@pytest.mark.parametrize("make", [make_adam, make_loss_scaled])
def test_a_model_file_has_the_whole_state(rank, tmp_path, make):
    """All ranks save; the file is loaded without tf_smddp's optimizer, and with it."""
    sharded, _ = trained(make, rank, True)
    whole, _ = trained(make, rank, False)
    path = str(tmp_path / f"{rank}.keras")
    sharded.save(path)
    loaded = keras.models.load_model(path)
    for one, two in zip(slots(loaded.optimizer), slots(whole.optimizer)):
        assert_equal(one, two)
    weights = path.replace(".keras", ".weights.h5")
    sharded.save_weights(weights)
    other = model()
    other.compile(sdp.DistributedOptimizer(make(), shard_state=True), "mse")
    other.optimizer.build(other.trainable_variables)
    other.load_weights(weights)
    for one, two in zip(slots(other.optimizer), slots(sharded.optimizer)):
        assert_equal(one, two)


def datasets(path):
    """The arrays of the optimizer in an HDF5 file, in the order of their values."""
    found = []
    with h5py.File(path) as file:
        file["optimizer_weights"].visititems(lambda _, each: found.append(each))
        found = [np.array(each) for each in found if isinstance(each, h5py.Dataset) and each.shape]
    return sorted(found, key=lambda each: (each.shape, each.tobytes()))


@pytest.mark.filterwarnings("ignore:You are saving your model as an HDF5 file")
def test_an_hdf5_file_has_the_whole_state(rank, tmp_path):
    found = []
    for shard_state in (False, True):
        path = str(tmp_path / f"{rank}-{shard_state}.h5")
        trained(make_loss_scaled, rank, shard_state)[0].save(path)
        found.append(datasets(path))
    assert len(found[0]) == len(found[1]) > 10
    for one, two in zip(*found):
        assert_equal(one, two)


def test_a_callback_that_saves_on_rank_0(rank, tmp_path):
    """All ranks have it. It saves in the second epoch of three."""
    path = os.path.join(sdp.broadcast_object(str(tmp_path)), "{epoch}.keras")
    callback = sdp.keras.callbacks.RankZeroCheckpoint(path, save_freq=2 * STEPS)
    found = []
    for shard_state in (False, True):
        keras.utils.set_random_seed(3)
        saved = model()
        saved.compile(sdp.DistributedOptimizer(make_adam(), shard_state=shard_state), "mse")
        options = {} if not shard_state else {"callbacks": [callback]}
        saved.fit(*data(rank), BATCH, epochs=3 if shard_state else 2, shuffle=False, verbose=0, **options)
        found.append(saved)
    sdp.barrier()
    assert os.listdir(os.path.dirname(path)) == ["2.keras"]
    loaded = keras.models.load_model(path.format(epoch=2))
    for one, two in zip(slots(loaded.optimizer), slots(found[0].optimizer)):
        assert_equal(one, two)


def test_an_asynchronous_checkpoint_is_refused(rank, tmp_path):
    """TensorFlow would save copies of the variables, which are parts."""
    sharded, _ = trained(make_adam, rank, True)
    options = tf.train.CheckpointOptions(experimental_enable_async_checkpoint=True)
    with pytest.raises(RuntimeError, match=r"is sharded, and cannot be saved .* or asynchronously"):
        tf.train.Checkpoint(optimizer=sharded.optimizer).save(str(tmp_path / f"{rank}"), options)


@pytest.mark.parametrize(
    ("options", "gradient"),
    [
        ({"clipnorm": -1.0}, 2.0),  # Keras does not clip then
        ({"global_clipnorm": -1.0}, 2.0),
        ({"clipnorm": 1.0}, np.inf),
        ({"global_clipnorm": 1.0}, np.inf),
        ({"clipnorm": 1.0}, 2e20),  # its square is beyond float32
        ({"global_clipnorm": 1.0}, 2e20),
    ],
)
def test_clipping_as_with_whole_state(options, gradient):
    found = []
    for shard_state in (False, True):
        variables = [(keras if KERAS_3 else tf).Variable(np.ones((70, n)), dtype="float64") for n in (70, 3)]
        optimizer = sdp.DistributedOptimizer(optimizers.SGD(0.5, **options), shard_state=shard_state)
        gradients = [np.full((70, n), 2.0) for n in (70, 3)]
        gradients[0][0, 0] = gradient
        optimizer.apply_gradients([(tf.constant(each), one) for each, one in zip(gradients, variables)])
        found.append(values(variables))
    for one, other in zip(*found):
        np.testing.assert_allclose(one, other, 1e-12)


def test_a_broadcast_leaves_the_parts(rank):
    sharded, _ = trained(make_adam, rank, True)
    before = slots(sharded.optimizer)
    optimizer = sharded.optimizer
    sdp.broadcast_variables(
        optimizer.variables() if callable(optimizer.variables) else optimizer.variables, 0
    )
    for one, two in zip(slots(sharded.optimizer), before):
        assert_equal(one, two)


class WithStateOfItsOwn(keras.optimizers.SGD):
    def build(self, variables):
        super().build(variables)
        self.norms = self.add_variable(shape=[3], name="norms")


class WithANumber(keras.optimizers.SGD):
    """Each rank would have the number of its own parts."""

    def build(self, variables):
        super().build(variables)
        self.total = tf.Variable(0.0)


@pytest.mark.min_ranks(2)
def test_a_rank_that_owns_no_variable(rank):
    """A step that is not finite is skipped there, too."""
    found = []
    for shard_state in (False, True):
        optimizer = loss_scale(sdp.DistributedOptimizer(optimizers.Adafactor(0.01), shard_state=shard_state))
        variable = (keras if KERAS_3 else tf).Variable(np.ones((70, 70), np.float32))
        for value in (1.0, np.inf if rank == 0 else 1.0, 2.0):
            optimizer.apply_gradients([(tf.fill([70, 70], value), variable)])
        inner = optimizer.inner_optimizer
        found.append((np.array(variable), int(inner.iterations)))
    np.testing.assert_allclose(found[0][0], found[1][0], 1e-6)
    assert found[0][1] == found[1][1]


@pytest.mark.keras(3)
def test_averages_of_variables_that_a_step_leaves_out(rank):
    """Keras 3 averages them, too, and puts the averages in their place."""
    found = []
    for shard_state in (False, True):
        variables = [keras.Variable(np.full((70, 70), value, np.float32)) for value in (1, 2)]
        optimizer = optimizers.SGD(0.1, use_ema=True, ema_momentum=0.5, ema_overwrite_frequency=2)
        optimizer = sdp.DistributedOptimizer(optimizer, shard_state=shard_state)
        optimizer.build(variables)
        for step in range(3):
            variables[1].assign(variables[1] * 3)
            optimizer.apply_gradients([(tf.fill([70, 70], float(rank + step)), variables[0])])
        found.append(values(variables))
    for one, other in zip(*found):
        assert_equal(one, other)


def test_callbacks_that_save_on_all_ranks(rank, tmp_path):
    """They do not wait for each other's files."""
    keras.utils.set_random_seed(3)
    saved = model()
    saved.compile(sdp.DistributedOptimizer(make_adam(), shard_state=True), "mse")
    path = os.path.join(sdp.broadcast_object(str(tmp_path)), f"{rank}.keras")  # in one folder
    saved.fit(*data(rank), batch_size=BATCH, verbose=0, callbacks=[keras.callbacks.ModelCheckpoint(path)])
    loaded = keras.models.load_model(path)
    assert num_elements(loaded.optimizer) >= num_elements(saved.optimizer)
    for one, two in zip(values(loaded.trainable_variables), values(saved.trainable_variables)):
        assert_equal(one, two)


@pytest.mark.keras(2)
def test_a_saved_model_has_no_such_state(rank, tmp_path):
    sharded, _ = trained(make_adam, rank, True)
    with pytest.raises(RuntimeError, match=r"the optimizer's state for .* is sharded, and cannot be saved"):
        sharded.save(str(tmp_path / str(rank)), save_format="tf")
    sharded.save(str(tmp_path / f"{rank}-without"), save_format="tf", include_optimizer=False)


@pytest.mark.keras(3)
def test_a_callback_that_puts_averages_in_place(rank):
    keras.utils.set_random_seed(3)
    averaged = model()
    optimizer = sdp.DistributedOptimizer(optimizers.Adam(0.01, use_ema=True), shard_state=True)
    averaged.compile(optimizer, "mse")
    with pytest.raises(ValueError, match="SwapEMAWeights is not for DistributedOptimizer"):
        averaged.fit(*data(rank), verbose=0, callbacks=[keras.callbacks.SwapEMAWeights()])


def test_refusals(rank):
    whole, _ = trained(make_adam, rank, False)
    plain = make_adam()
    plain.build(whole.trainable_variables)
    with pytest.raises(ValueError, match=r"comes too late for .*Adam"):
        sdp.DistributedOptimizer(plain, shard_state=True)
    with pytest.raises(TypeError, match="is for optimizers of Keras 3"):
        sdp.DistributedOptimizer(tf.compat.v1.train.AdamOptimizer(), shard_state=True)
    for kind in (WithStateOfItsOwn, WithANumber):
        other = sdp.DistributedOptimizer(kind(0.01), shard_state=True)
        with pytest.raises(ValueError, match=f"is not for {kind.__name__}, which has state"):
            other.build(whole.trainable_variables)
    optimizer = sdp.DistributedOptimizer(make_adam(), shard_state=True)
    kernel = whole.trainable_variables[0]
    for shape in [(77, 65), (5004,)]:
        with pytest.raises(ValueError, match=r"a gradient for .* has shape \(.*, and not \(65, 77\)"):
            optimizer.apply_gradients([(tf.ones(shape), kernel)])
    with pytest.raises(TypeError, match="sharded state cannot be copied"):
        copy.deepcopy(optimizer)
    found = model()
    found.compile(sdp.DistributedOptimizer(loss_scale(make_adam()), shard_state=True), "mse")
    with pytest.raises(ValueError, match=r"join\(\) is not for DistributedOptimizer\(shard_state=True\)"):
        sdp.join(found)
    with pytest.raises(ValueError, match=r"Join\(\) is not for DistributedOptimizer\(shard_state=True\)"):
        found.fit(*data(rank), callbacks=[sdp.keras.callbacks.Join()], verbose=0)


@pytest.mark.min_ranks(2)
def test_a_rank_that_saves_alone(rank, tmp_path):
    """Its error, and those of the others, name what all must save together.

    They do not train: `fit` has several collectives under way, and the first one need not meet the rank's.
    """
    sharded, _ = trained(make_adam, rank, True)
    with pytest.raises(tf.errors.InternalError, match="the state that all ranks must save together"):
        if rank == 0:
            sharded.save(str(tmp_path / "alone.keras"))
        else:
            sdp.allreduce(tf.ones([1]))
    while True:
        try:
            return sdp.barrier()
        except tf.errors.OpError:
            pass

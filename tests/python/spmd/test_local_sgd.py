"""LocalSGD: ranks train by themselves, and average their weights every so many steps."""

import copy
import warnings

import numpy as np
import pytest
import tensorflow as tf
from modes import compiled, eager, modes
from optimizer_families import (
    ALL,
    EAGER_AND_GRAPH,
    OF_KERAS_3,
    applier,
    array,
    assert_same_on_all_ranks,
    each,
    each_and_tf_keras,
)

import tf_smddp as sdp
from tf_smddp._guards import drift, gradient_use, loop_check
from tf_smddp._training import local_sgd
from tf_smddp.keras import callbacks

EVERY = 3
RATE, OUTER_RATE, MOMENTUM = 0.25, 0.5, 0.75
DIFFER = "the ranks' weights differ: "
START = [1.0, 2.0]


def gradient_of(rank, step):
    return np.array([(rank + 1.0) * (step + 1.0), step - 2.0 * rank], np.float32)


def by_definition(size, steps, outer=False, every=EVERY):
    """The weights of each rank after each step, [steps, size, 2]: SGD by itself, and the rounds of all."""
    weights = np.tile(np.array(START), (size, 1))
    start, speed, found = weights[0], 0.0, []
    for step in range(steps):
        weights = weights - RATE * np.array([gradient_of(rank, step) for rank in range(size)])
        if (step + 1) % every == 0:
            mean = weights.mean(axis=0)
            if outer:  # Nesterov's momentum, as Keras has it
                speed = MOMENTUM * speed - OUTER_RATE * (start - mean)
                mean = start + MOMENTUM * speed - OUTER_RATE * (start - mean)
            start, weights = mean, np.tile(mean, (size, 1))
        found.append(weights)
    return np.array(found)


def outer_of(family):
    return family.optimizers.SGD(OUTER_RATE, momentum=MOMENTUM, nesterov=True)


def averaging_calls():
    return sdp.stats()["collectives"]["allreduce"]["calls"]


@each(ALL)
@modes(eager, tf.function, compiled)
@pytest.mark.parametrize("with_outer", [False, True], ids=["mean", "diloco"])
def test_rounds(rank, size, family, mode, with_outer):
    x, unused = family.variable(START), family.variable([3.0])
    outer = outer_of(family) if with_outer else None
    optimizer = sdp.LocalSGD(family.optimizers.SGD(RATE), every=EVERY, outer=outer)
    assert optimizer.__class__.__name__ == "SGD" and isinstance(optimizer, family.optimizers.SGD)

    @mode
    def apply(gradient):
        optimizer.apply_gradients([(gradient, x), (None, unused)])

    wanted = by_definition(size, 7, with_outer)
    for step in range(7):
        if step == 1:
            sdp.stats(reset=True)
        apply(tf.constant(gradient_of(rank, step)))
        np.testing.assert_allclose(array(x), wanted[step, rank], rtol=1e-5)
    # Two averagings of both variables.
    assert averaging_calls() == 4
    assert int(optimizer.iterations) == 7
    optimizer.synchronize()
    assert_same_on_all_ranks([x, unused])
    assert array(unused).tolist() == [3.0]
    if with_outer:
        assert int(outer.iterations) == 3
    else:
        np.testing.assert_allclose(array(x), wanted[-1].mean(axis=0), rtol=1e-5)
    before = array(x)
    optimizer.synchronize()
    assert array(x).tolist() == before.tolist()


def trained_digits(family, wrap, optimizer, rank, size, mode, steps=10):
    """The weights of a small network after some steps on random data, and the numbers of both layers."""
    layers = family.keras.layers
    family.keras.utils.set_random_seed(1)
    model = family.keras.Sequential(
        [layers.InputLayer((5,)), layers.Dense(7, activation="tanh"), layers.Dense(2)]
    )
    optimizer = wrap(optimizer)
    variables = model.trainable_variables

    @mode
    def step(features):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((model(features) - tf.reduce_sum(features, 1, keepdims=True)) ** 2)
        optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables))

    for number in range(steps):
        data = np.random.default_rng(size * number + rank).normal(size=(8, 5))
        step(tf.constant(data, tf.float32))
    return [array(variable) for variable in variables]


@each_and_tf_keras([family for family in ALL if not family.is_legacy or family.is_beside_keras3])
@modes(eager, tf.function)
@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_each_step_averaged_is_synchronous_sgd(rank, size, family, mode, momentum):
    def run(wrap):
        optimizer = family.optimizers.SGD(0.05, momentum=momentum)
        return trained_digits(family, wrap, optimizer, rank, size, mode)

    for mine, wanted in zip(
        run(lambda plain: sdp.LocalSGD(plain, every=1)), run(sdp.DistributedOptimizer), strict=True
    ):
        np.testing.assert_allclose(mine, wanted, rtol=1e-5, atol=1e-6)


def inside(family, optimizer):
    return sdp.LocalSGD(family.loss_scale_optimizer(optimizer, initial_scale=8.0), EVERY)


def outside(family, optimizer):
    return family.loss_scale_optimizer(sdp.LocalSGD(optimizer, EVERY), initial_scale=8.0)


@each(ALL)
@pytest.mark.parametrize("nest", [inside, outside])
@EAGER_AND_GRAPH
def test_a_rank_skips_its_step_by_itself(rank, size, family, nest, mode):
    """A LossScaleOptimizer finds an infinity on one rank, and that rank averages as the others do."""
    x = family.variable(START)
    optimizer = nest(family, family.optimizers.SGD(1.0))
    assert isinstance(optimizer, family.loss_scale_optimizer)
    apply = applier(optimizer, [x], mode)
    scale = 8.0 if family.is_keras3 else 1.0
    for step, gradient in enumerate([scale, scale, 0.0]):
        apply([tf.constant([np.inf if step == 1 and rank == 0 else gradient] * 2)])
    # Rank 0 has moved by 1, and the others by 2.
    np.testing.assert_allclose(array(x), np.array(START) - (1.0 + 2.0 * (size - 1)) / size, rtol=1e-6)
    optimizer.synchronize()
    assert_same_on_all_ranks([x])


@pytest.fixture
def told(monkeypatch):
    """Returns the warnings that have a text. Weights are compared after each epoch and each step."""
    monkeypatch.delenv("SMDDP_CHECK_EVERY", raising=False)
    monkeypatch.setattr(drift, "_PARTS_OF_TIME", 0)
    monkeypatch.setattr(loop_check, "_period", lambda count: count)
    monkeypatch.setattr(gradient_use, "_seen", gradient_use._Seen())
    loop_check._state.forget()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield lambda text="": [str(each.message) for each in caught if text in str(each.message)]
    loop_check._state.forget()


def data(rank, rows=20):
    random = np.random.default_rng(rank)
    return random.normal(size=(rows, 3)).astype(np.float32), random.normal(size=(rows, 2)).astype(np.float32)


def made(family, optimizer, *layers, **options):
    found = family.keras.layers
    model = family.keras.Sequential([found.InputLayer((3,)), *layers, found.Dense(2, name="last")])
    options = {"jit_compile": False, **options}
    model.compile(optimizer, family.keras.losses.MeanSquaredError(), **options)
    return model


def fit(model, rank, *more, rows=20, epochs=2, **options):
    given = [callbacks.BroadcastGlobalVariablesCallback(0), *more]
    x, y = data(rank, rows)
    model.fit(x, y, 4, epochs, verbose=0, shuffle=False, callbacks=given, **options)


class Averages(tf.keras.callbacks.Callback):
    """Asserts that weights are equal where the end of an epoch, and its validation, begin."""

    def __init__(self):
        super().__init__()
        self.looked = 0

    def look(self, *_, **__):
        assert_same_on_all_ranks(self.model.trainable_variables)
        self.looked += 1

    on_test_begin = on_epoch_end = look


FITS = [family for family in ALL if not family.is_beside_keras3]


@each_and_tf_keras(FITS)
@pytest.mark.parametrize("jit", [pytest.param(True, marks=pytest.mark.slow, id="jit"), False])
def test_fit(rank, size, family, jit, told):
    """Five steps in an epoch, in calls of two; the last two of an epoch are a round, too."""
    if jit and family.is_legacy:
        jit = False
    optimizer = sdp.LocalSGD(family.optimizers.SGD(0.1), EVERY, outer_of(family))
    layers = family.keras.layers
    normalization = layers.BatchNormalization()
    model = made(family, optimizer, normalization, jit_compile=jit, steps_per_execution=2)
    look = Averages()
    fit(model, rank, look, validation_data=data(rank))
    assert look.looked == 4
    assert int(local_sgd.state_of(optimizer).rounds) == 4
    assert not told(DIFFER) and not told("gradient")
    # What is not trained stays each rank's own.
    moving = array(normalization.moving_mean)
    assert size == 1 or not np.array_equal(*sdp.allgather([moving])[:2])


@each_and_tf_keras(FITS)
def test_join_in_fit(rank, size, family, told):
    """The last rank has most batches. Those that missed an averaging count with its weights."""
    optimizer = sdp.LocalSGD(family.optimizers.SGD(0.1), EVERY)
    model = made(family, optimizer)
    look = Averages()
    fit(model, rank, callbacks.Join(), look, rows=8 + 4 * rank)
    assert look.looked == 2
    assert not told(DIFFER)


@modes(eager, tf.function)
@pytest.mark.parametrize("counts", ["equal", "other round", "same round"])
def test_join(rank, size, mode, counts):
    family = ALL[0]
    x = family.variable(START)
    optimizer = sdp.LocalSGD(family.optimizers.SGD(RATE), EVERY)
    apply = applier(optimizer, [x], mode)
    others = {"equal": 5, "other round": 2, "same round": 4}[counts]
    steps = 5 if rank == 0 else others
    with sdp.join(optimizer, [x]):
        for step in range(steps):
            apply([tf.constant(gradient_of(rank, step))])
    mine = np.array([by_definition(size, 5)[n - 1, r] for r, n in enumerate([5] + [others] * (size - 1))])
    if counts == "other round":
        alone = by_definition(1, 5)[2, 0]  # rank 0 has averaged alone
        mine[:] = alone - RATE * sum(gradient_of(0, step) for step in (3, 4))
    np.testing.assert_allclose(array(x), mine.mean(axis=0), rtol=1e-5)
    assert_same_on_all_ranks([x, optimizer.iterations])
    # All count alike from here on.
    for step in range(EVERY):
        apply([tf.constant(gradient_of(rank, step))])
    assert_same_on_all_ranks([x])


@each(FITS)
def test_join_with_an_outer_optimizer(rank, size, family):
    """Those that have missed rounds get its state, too."""
    x, outer = family.variable(START), outer_of(family)
    optimizer = sdp.LocalSGD(family.optimizers.SGD(RATE), EVERY, outer)
    apply = applier(optimizer, [x], tf.function)
    for rounds in (2, 4):
        with sdp.join(optimizer, [x]):
            for step in range(EVERY * (1 if rank == 0 else 2)):
                apply([tf.constant(gradient_of(rank, step))])
        found = outer.variables() if callable(outer.variables) else outer.variables
        assert_same_on_all_ranks([x, *found])
        assert int(outer.iterations) == (rounds if size > 1 else rounds // 2)


@modes(eager, tf.function)
@pytest.mark.parametrize("with_outer", [False, True], ids=["mean", "diloco"])
def test_loops_are_compared_between_rounds(rank, size, mode, with_outer, told):
    """Weights differ within a round, and a rank that changes its own between two rounds is told of."""
    family = FITS[0]
    weights = [tf.Variable([float(i), 2.0], name=name) for i, name in enumerate(("first", "second"))]
    sdp.broadcast_variables(weights, 0)
    outer = outer_of(family) if with_outer else None
    optimizer = sdp.LocalSGD(family.optimizers.SGD(RATE), EVERY, outer)
    apply = applier(optimizer, weights, mode)

    def rounds(count):
        for step in range(count * EVERY):
            apply([tf.constant(gradient_of(rank, step))] * 2)

    rounds(3)
    assert not told(DIFFER)
    if rank == size - 1:
        weights[1].assign_add([0.0, 0.5])
    rounds(3)
    assert len(told(DIFFER)) == (rank == 0 and size > 1)
    assert all("1 of 2 trained variables, first 'second:0'" in text for text in told(DIFFER))


@each_and_tf_keras(FITS)
def test_another_compile_with_a_plain_optimizer(rank, size, family, told):
    model = made(family, sdp.LocalSGD(family.optimizers.SGD(0.1), EVERY))
    fit(model, rank)
    assert not told("trained")
    model.compile(family.optimizers.SGD(0.1), family.keras.losses.MeanSquaredError(), jit_compile=False)
    fit(model, rank)
    assert len(told("has applied gradients that were not reduced")) == (rank == 0 and size > 1)
    assert len(told(DIFFER)) == (rank == 0 and size > 1)


def test_a_job_that_ends_between_averagings(rank, told):
    x = FITS[0].variable(START)
    optimizer = sdp.LocalSGD(FITS[0].optimizers.SGD(RATE), 5)
    apply = applier(optimizer, [x])
    state = local_sgd.state_of(optimizer)
    for _ in range(4):
        apply([tf.constant(START)])
    state.warn_if_apart()
    (text,) = told("the job has ended")
    assert "4 steps after the weights were averaged (every 5 steps, and 0 times in all)" in text
    assert "Call synchronize() on the optimizer" in text
    optimizer.synchronize()
    state.warn_if_apart()
    assert len(told("the job has ended")) == 1


def test_a_tape_that_reduces(rank, size, told):
    x = tf.Variable(START)
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(x)
    gradients = sdp.DistributedGradientTape(tape).gradient(loss, [x])
    sdp.LocalSGD(FITS[0].optimizers.SGD(RATE), EVERY).apply_gradients(zip(gradients, [x]))
    found = told("LocalSGD gets gradients that DistributedGradientTape has reduced before")
    assert len(found) == (rank == 0)


@each(FITS)
@pytest.mark.parametrize("way", ["shared", "per rank", "in a round", "after a round"])
@pytest.mark.parametrize("early", [False, True], ids=["built", "deferred"])
def test_a_checkpoint_goes_on(rank, size, family, way, early, tmp_path):
    """Ours, which averages first; and tf.train.Checkpoint, of each rank."""
    folder = sdp.broadcast_object(str(tmp_path))
    saved = 2 * EVERY if way == "after a round" else 2 * EVERY - 1

    def make():
        x = tf.Variable(START)
        optimizer = sdp.LocalSGD(family.optimizers.SGD(RATE, momentum=0.5), EVERY, outer_of(family))
        if way == "shared":
            kept = sdp.Checkpoint(folder, x=x, optimizer=optimizer)
        elif way == "per rank":
            kept = sdp.Checkpoint(folder, per_rank={"x": x, "optimizer": optimizer})
        else:
            kept = tf.train.Checkpoint(x=x, optimizer=optimizer)
        return x, optimizer, applier(optimizer, [x], tf.function), kept

    def go_on(apply, first, last):
        for step in range(first, last):
            apply([tf.constant(gradient_of(rank, step))])

    x, _, apply, checkpoint = make()
    go_on(apply, 0, saved)
    if "round" in way:
        path = checkpoint.save(str(tmp_path / f"of-{rank}"))
    else:
        checkpoint.save(saved)
        assert_same_on_all_ranks([x])
    go_on(apply, saved, 10)

    y, other, apply, checkpoint = make()
    if not early:
        go_on(apply, 0, 1)
    if "round" in way:
        checkpoint.restore(path)
    else:
        assert checkpoint.restore() == saved
        assert int(local_sgd.state_of(other).steps) == 0
    go_on(apply, saved, 10)
    if way == "shared":  # with rank 0's momentum on all
        other.synchronize()
        assert_same_on_all_ranks([y])
    else:
        np.testing.assert_array_equal(array(y), array(x))


@each(FITS)
def test_files_of_keras_have_the_plain_optimizer(rank, size, family, tmp_path):
    model = made(family, sdp.LocalSGD(family.optimizers.Adam(0.1), EVERY, outer_of(family)))
    fit(model, rank, epochs=1)
    path = tmp_path / ("model.keras" if not family.is_legacy else "model.h5")
    model.save(path)
    loaded = family.keras.models.load_model(path)
    assert type(loaded.optimizer) is model.optimizer.__class__
    for mine, wanted in zip(loaded.get_weights(), model.get_weights()):
        np.testing.assert_array_equal(mine, wanted)
    assert int(loaded.optimizer.iterations) == 5


@pytest.mark.keras(3)
@EAGER_AND_GRAPH
def test_steps_that_are_accumulated(rank, size, mode):
    family = OF_KERAS_3[0]
    x = family.variable(START)
    optimizer = sdp.LocalSGD(family.optimizers.SGD(RATE, gradient_accumulation_steps=2), EVERY)
    apply = applier(optimizer, [x], mode)
    wanted = by_definition(size, 4)
    for step in range(4):
        for _ in range(2):
            apply([tf.constant(gradient_of(rank, step))])
        np.testing.assert_allclose(array(x), wanted[step, rank], rtol=1e-5)
    optimizer.synchronize()


@pytest.mark.min_ranks(2)
def test_ranks_that_count_differently(rank, size):
    family, x = FITS[0], FITS[0].variable(START)
    with pytest.raises(RuntimeError, match=rf"count alike \(rank 0: 0 steps after .* 0, every={3}; rank 1: "):
        applier(sdp.LocalSGD(family.optimizers.SGD(RATE), 3 + rank), [x])([tf.constant(START)])
    model = made(family, sdp.LocalSGD(family.optimizers.SGD(RATE), 3 + rank))
    with pytest.raises(RuntimeError, match="the ranks do not count alike"):
        fit(model, rank)
    optimizer = sdp.LocalSGD(family.optimizers.SGD(RATE), 5)
    apply = applier(optimizer, [x])
    for _ in range(2 if rank == 0 else 4):
        apply([tf.constant(START)])
    with pytest.raises(RuntimeError, match=r"rank 0: 2 steps after averaging number 0, every=5; rank 1: 4"):
        optimizer.synchronize()
    for _ in range(2 if rank == 0 else 0):
        apply([tf.constant(START)])
    optimizer.synchronize()
    assert_same_on_all_ranks([x])


@each(FITS)
def test_what_is_refused(rank, size, family):
    def sgd(**options):
        return family.optimizers.SGD(RATE, **options)

    for every, error in [(0, ValueError), (-1, ValueError), (1.5, TypeError), (None, TypeError)]:
        with pytest.raises(error, match=rf"LocalSGD needs .*{every}"):
            sdp.LocalSGD(sgd(), every)
    for wrong in ["sgd", tf.compat.v1.train.GradientDescentOptimizer(0.1), None]:
        with pytest.raises(TypeError, match=r"LocalSGD takes optimizers of tf\.keras, keras or tf_keras"):
            sdp.LocalSGD(wrong, 2)
    with pytest.raises(TypeError, match="LocalSGD takes optimizers"):
        sdp.LocalSGD(sgd(), 2, outer="sgd")
    with pytest.raises(TypeError, match="LocalSGD needs no LossScaleOptimizer"):
        sdp.LocalSGD(sgd(), 2, outer=family.loss_scale_optimizer(sgd()))
    scaled = family.loss_scale_optimizer(sgd())
    sdp.DistributedOptimizer(scaled)
    with pytest.raises(ValueError, match="LocalSGD has wrapped"):
        sdp.LocalSGD(scaled, 2)
    local, distributed = sdp.LocalSGD(sgd(), 2), sdp.DistributedOptimizer(sgd())
    for wrapped in (local, distributed):
        for wrap in (lambda x: sdp.LocalSGD(x, 2), lambda x: sdp.LocalSGD(sgd(), 2, x)):
            with pytest.raises(ValueError, match="LocalSGD has wrapped"):
                wrap(wrapped)
    with pytest.raises(ValueError, match="is distributed already, by it or by LocalSGD"):
        sdp.DistributedOptimizer(local)
    with pytest.raises(TypeError, match="cannot be copied"):
        copy.deepcopy(local)
    if not family.is_legacy:
        with pytest.raises(ValueError, match="use_ema=True"):
            sdp.LocalSGD(sgd(use_ema=True), 2)
    x, y = tf.Variable(START), tf.Variable(START)
    applier(local, [x])([tf.constant(START)])
    with pytest.raises(ValueError, match="the 1 variables of the optimizer's first step"):
        applier(local, [x, y])([tf.constant(START)] * 2)
    with tf.Graph().as_default(), pytest.raises(RuntimeError, match="does not work in v1 graphs"):
        sdp.LocalSGD(sgd(), 2)
    with sdp.distribute.Strategy().scope(), pytest.raises(RuntimeError, match="Take away LocalSGD"):
        sdp.LocalSGD(sgd(), 2)
    with sdp.distribute.Strategy().scope(), pytest.raises(RuntimeError, match="Take away LocalSGD"):
        applier(local, [x])([tf.constant(START)])
    local.synchronize()


@each(FITS)
def test_an_optimizer_that_its_class_makes_averages_too(rank, size, family):
    optimizer = sdp.LocalSGD(family.optimizers.SGD(RATE), EVERY, outer_of(family))
    other = type(optimizer).from_config(optimizer.get_config())
    x = family.variable(START)
    apply = applier(other, [x])
    for step in range(EVERY):
        apply([tf.constant(gradient_of(rank, step))])
    np.testing.assert_allclose(array(x), by_definition(size, EVERY, outer=True)[-1, rank], rtol=1e-5)

"""join: ranks that have different numbers of batches, in loops, `fit`, v1 sessions and estimators."""

import numpy as np
import pytest
import tensorflow as tf
from modes import compiled, eager, modes
from optimizer_families import ALL, each_and_tf_keras
from values import assert_equal

import tf_smddp as sdp

pytestmark = pytest.mark.gpu

v1 = tf.compat.v1

FEATURES = 3
RATE, MOMENTUM = 0.1, 0.9


def batch(rank, step):
    return np.random.default_rng(1000 * rank + step).normal(size=(4, FEATURES))


def gradient(weight, features):
    """The gradient of the mean of squares of features · weight - 1."""
    return 2 * features.T @ (features @ weight - 1) / len(features)


def train_by_definition(counts, fails=(), batch_of=batch):
    """Momentum SGD: each step averages over the ranks that have a batch. `fails`: steps that nobody does."""
    weight, speed = np.zeros((FEATURES, 1)), np.zeros((FEATURES, 1))
    for step in range(max(counts)):
        if step in fails:
            continue
        there = [rank for rank, count in enumerate(counts) if count > step]
        average = np.mean([gradient(weight, batch_of(rank, step)) for rank in there], axis=0)
        speed = MOMENTUM * speed + average
        weight = weight - RATE * speed
    return weight, speed


class Training:
    """Momentum SGD by hand, so that both Keras versions have nothing to do with it."""

    def __init__(self, mode):
        self.weight = tf.Variable(np.zeros((FEATURES, 1)))
        self.speed = tf.Variable(np.zeros((FEATURES, 1)))
        self.state = [self.weight, self.speed]
        self.step = mode(self._step)

    def _step(self, features):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((features @ self.weight - 1) ** 2)
        (average,) = sdp.DistributedGradientTape(tape).gradient(loss, [self.weight])
        self.speed.assign(MOMENTUM * self.speed + average)
        self.weight.assign_sub(RATE * self.speed)

    def check(self, weight, speed):
        np.testing.assert_allclose(self.weight, weight, rtol=1e-9)
        np.testing.assert_allclose(self.speed, speed, rtol=1e-9)
        for mine in self.state:
            assert_equal(sdp.broadcast(mine, 0), mine.numpy(), "equal to the bit on all ranks")


@pytest.mark.one_rank
@modes(eager, tf.function, compiled)
def test_uneven_counts_give_what_the_definition_gives(rank, size, mode):
    counts = [10, 11, 13, 9][:size]
    training = Training(mode)
    for _ in range(2):  # the second time with what the first one has traced
        for variable in training.state:
            variable.assign(tf.zeros_like(variable))
        with sdp.join(training.state) as joined:
            for step in range(counts[rank]):
                training.step(tf.constant(batch(rank, step)))
        assert joined.last_rank == int(np.argmax(counts))
        training.check(*train_by_definition(counts))


@pytest.mark.one_rank
def test_files_of_different_lengths(rank, size, tmp_path):
    """Each rank has files of its own, and reads each record of them once."""
    random = np.random.default_rng(7)
    rows_of_files = [random.normal(size=(3 * number + 1, FEATURES)) for number in range(size + 2)]
    for number, rows in enumerate(rows_of_files):
        with tf.io.TFRecordWriter(str(tmp_path / f"part-{number}")) as writer:
            for row in rows:
                writer.write(row.tobytes())
    batches = []  # of each rank
    for each in range(size):
        rows = np.concatenate(rows_of_files[each::size])
        batches.append([rows[start : start + 4] for start in range(0, len(rows), 4)])

    names = tf.data.Dataset.list_files(str(tmp_path / "part-*"), shuffle=False)
    records = tf.data.TFRecordDataset(sdp.shard(names, equal=False))
    training = Training(tf.function)
    with sdp.join(training.state):
        for features in records.map(lambda record: tf.io.decode_raw(record, tf.float64)).batch(4):
            training.step(tf.ensure_shape(features, [None, FEATURES]))
    counts = [len(each) for each in batches]
    assert size == 1 or len(set(counts)) > 1
    training.check(*train_by_definition(counts, batch_of=lambda rank, step: batches[rank][step]))


def test_a_rank_without_any_batch(rank, size):
    """It has none in the first loop, and begins in the second one."""
    training = Training(tf.function)
    for counts in ([3 if rank == size - 1 else 0 for rank in range(size)], [2] * size):
        for variable in training.state:
            variable.assign(tf.zeros_like(variable))
        with sdp.join(training.state):
            for step in range(counts[rank]):
                training.step(tf.constant(batch(rank, step)))
        training.check(*train_by_definition(counts))


@pytest.mark.parametrize(
    "rounds", [pytest.param(40, id="short"), pytest.param(500, id="long", marks=pytest.mark.long)]
)
def test_random_lengths_and_steps_that_fail(rank, size, rounds):
    """A step that fails on one rank fails on all that have not joined, and they go on with the next one."""
    training = Training(eager)

    @tf.function
    def step(features, bad):
        begun = sdp.allreduce(1.0)  # so that the ranks know of the step before it fails
        with tf.control_dependencies([begun]):
            checked = tf.debugging.Assert(tf.logical_not(bad), ["the disk is full"])
        with tf.control_dependencies([checked]):
            features = tf.identity(features)
        training.step(features)

    for number in range(rounds):
        random = np.random.default_rng(number)
        counts = random.integers(0, 6, size=size)
        fails = {s for s in range(6) if random.random() < 0.15}
        for variable in training.state:
            variable.assign(tf.zeros_like(variable))
        with sdp.join(training.state):
            for at in range(counts[rank]):
                there = np.flatnonzero(counts > at)
                bad = at in fails and there[number % len(there)] == rank
                try:
                    step(tf.constant(batch(rank, at)), tf.constant(bad))
                    failed = False
                except tf.errors.OpError as error:
                    failed = "the disk is full" in str(error)
                    assert failed, error
                assert failed == (at in fails), (number, at)
        if max(counts) > 0:
            training.check(*train_by_definition(counts, fails))


@pytest.mark.min_ranks(2)
def test_what_the_others_get_meanwhile(rank, size):
    with sdp.join([]) as joined:
        x = tf.constant([rank + 1.0])
        if rank > 0:
            others = np.arange(2.0, size + 1)
            for op, of_others in ((sdp.ReduceOp.SUM, np.sum), (sdp.ReduceOp.AVERAGE, np.mean)):
                assert float(sdp.allreduce(x, op=op)[0]) == pytest.approx(of_others(others))
            assert float(sdp.allreduce(x, op=sdp.ReduceOp.MIN)[0]) == 2.0
            assert_equal(sdp.allgather(x), others.astype(np.float32), "rows of those that are there")
            assert float(sdp.broadcast(x, 1)[0]) == 2.0
            sdp.barrier()
            with pytest.raises((RuntimeError, tf.errors.OpError), match="the root has left"):
                sdp.broadcast(x, 0)
            with pytest.raises(RuntimeError, match=r"rank.* left the set of all ranks"):
                sdp.add_process_set([1])
    assert joined.last_rank != 0
    assert float(sdp.allreduce(x, op=sdp.ReduceOp.SUM)[0]) == size * (size + 1) / 2
    assert float(sdp.broadcast(x, 0)[0]) == 1.0


@pytest.mark.min_ranks(2)
def test_process_sets_are_left_and_joined_too(rank, size):
    pair = sdp.add_process_set([0, 1])
    try:
        with sdp.join([]):
            if rank == 1:
                assert float(sdp.allreduce(3.0, op=sdp.ReduceOp.SUM, process_set=pair)) == 3.0
        if pair.included():
            assert float(sdp.allreduce(3.0, op=sdp.ReduceOp.SUM, process_set=pair)) == 6.0
    finally:
        sdp.remove_process_set(pair)


def test_an_error_passes_through(rank, size):
    training = Training(tf.function)
    with pytest.raises(ValueError, match="on purpose"), sdp.join(training.state):
        training.step(tf.constant(batch(rank, 0)))
        raise ValueError("on purpose")
    training.step(tf.constant(batch(rank, 1)))
    with sdp.join(training.state):
        pass
    training.check(*train_by_definition([2] * size))


def test_arguments():
    with pytest.raises(TypeError, match=r"needs what the loop changes.*join\(model, optimizer\)"):
        sdp.join()
    with pytest.raises(TypeError, match=r"join\(\) takes models, optimizers and variables, but got 'model'"):
        sdp.join("model")

    @tf.function
    def traced():
        with sdp.join([]):
            pass

    with pytest.raises(RuntimeError, match=r"join\(\) was called while a function is traced"):
        traced()


def test_a_keras_model_and_its_optimizer(rank, size):
    tf.keras.utils.set_random_seed(3)
    model = tf.keras.Sequential([tf.keras.Input((FEATURES,)), tf.keras.layers.Dense(2)])
    optimizer = tf.keras.optimizers.Adam(0.1)
    with sdp.join(model, optimizer):
        for step in range(2 * rank):  # rank 0 has none, and so its optimizer has no variables yet
            with tf.GradientTape() as tape:
                loss = tf.reduce_sum(model(batch(rank, step).astype(np.float32)) ** 2)
            gradients = sdp.DistributedGradientTape(tape).gradient(loss, model.trainable_variables)
            optimizer.apply_gradients(zip(gradients, model.trainable_variables))
    assert int(optimizer.iterations.numpy()) == 2 * (size - 1)
    found = optimizer.variables() if callable(optimizer.variables) else optimizer.variables
    for variable in [*model.variables, *found]:
        value = tf.convert_to_tensor(variable).numpy()
        assert_equal(sdp.broadcast(value, 0), value, variable.name)


@each_and_tf_keras([family for family in ALL if not family.is_beside_keras3])
def test_fit(rank, size, family):
    """Epochs with different numbers of batches, and with a validation, from the same start."""
    layers = family.keras.layers
    family.keras.utils.set_random_seed(3)
    model = family.keras.Sequential([layers.InputLayer((FEATURES,)), layers.Dense(1, use_bias=False)])
    model.compile(
        sdp.DistributedOptimizer(family.optimizers.SGD(RATE, momentum=MOMENTUM)),
        family.keras.losses.MeanSquaredError(),
        jit_compile=False,
    )
    model.set_weights([np.zeros((FEATURES, 1))])
    counts = [2, 5, 3, 4][:size]
    features = np.concatenate([batch(rank, step) for step in range(counts[rank])]).astype(np.float32)
    data = (features, np.ones((len(features), 1), np.float32))
    history = model.fit(
        *data,
        batch_size=4,
        verbose=0,
        shuffle=False,
        validation_data=data,
        callbacks=[sdp.keras.callbacks.Join(), sdp.keras.callbacks.MetricAverageCallback()],
    ).history
    np.testing.assert_allclose(model.get_weights()[0], train_by_definition(counts)[0], rtol=2e-4)
    assert len(set(sdp.allgather_object(history["loss"][0]))) == 1
    model.fit(*data, batch_size=4, verbose=0, epochs=2, callbacks=[sdp.keras.callbacks.Join()])
    for weight in model.get_weights():
        assert_equal(sdp.broadcast(weight, 0), weight, "equal to the bit on all ranks")
    assert int(model.optimizer.iterations.numpy()) == 3 * max(counts)


@pytest.mark.parametrize("name", ["MetricAverageCallback", "TensorBoardStats"])
def test_collectives_before_join_are_refused(name):
    first = getattr(sdp.keras.callbacks, name)(*(["logs"] if name == "TensorBoardStats" else []))
    callbacks = [first, sdp.keras.callbacks.Join()]
    model = tf.keras.Sequential([tf.keras.Input((1,)), tf.keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    with pytest.raises(ValueError, match=rf"{name} is before Join.*Put Join\(\) before it"):
        model.fit(np.zeros((2, 1)), np.zeros((2, 1)), verbose=0, callbacks=callbacks)


def counting_graph(one):
    """A weight to which each step adds the average over the ranks of 1 + rank, and the step's op."""
    weight = v1.get_variable("weight", initializer=0.0)
    average = sdp.allreduce(one + float(sdp.rank()), 0, 1, name="average")
    step = v1.train.get_or_create_global_step()
    with tf.control_dependencies([average]), tf.control_dependencies([step.assign_add(1)]):
        return weight, weight.assign_add(average)


def sum_by_definition(counts):
    return sum(
        np.mean([1.0 + rank for rank, count in enumerate(counts) if count > step])
        for step in range(max(counts))
    )


def test_a_session(rank, size, tmp_path):
    counts = [2, 5, 3, 4][:size]
    folder = str(tmp_path) if rank == 0 else None
    for _ in range(2):  # the second session goes on with rank 0's checkpoint
        with tf.Graph().as_default():
            weight, train = counting_graph(tf.constant(1.0))
            hooks = [sdp.BroadcastGlobalVariablesHook(0), sdp.JoinHook(folder)]
            with v1.train.MonitoredTrainingSession(
                checkpoint_dir=folder, hooks=hooks, log_step_count_steps=None
            ) as session:
                start = session.run(weight)
                for _ in range(counts[rank]):
                    session.run(train)
    assert start == pytest.approx(sum_by_definition(counts))
    if rank == 0:
        latest = tf.train.latest_checkpoint(folder)
        assert tf.train.load_variable(latest, "weight") == pytest.approx(2 * start)
        assert tf.train.load_variable(latest, "global_step") == 2 * max(counts)


@pytest.mark.cpu_only("TensorFlow places an estimator's ops itself")
@pytest.mark.keras(2)  # TensorFlow 2.16, which came with Keras 3, has no estimators.
def test_estimator(rank, size, tmp_path):
    counts = [2, 5, 3, 4][:size]

    def model_fn(features, labels, mode):
        one = tf.reduce_sum(features)
        return tf.estimator.EstimatorSpec(mode, loss=one, train_op=counting_graph(one)[1])

    def input_fn():
        return tf.data.Dataset.from_tensors(([1.0], [1.0])).repeat(counts[rank])

    config = tf.estimator.RunConfig(str(tmp_path), save_summary_steps=None, log_step_count_steps=None)
    estimator = tf.estimator.Estimator(model_fn, config=config)
    estimator.train(input_fn, hooks=[sdp.BroadcastGlobalVariablesHook(0), sdp.JoinHook(estimator.model_dir)])
    assert estimator.get_variable_value("weight") == pytest.approx(sum_by_definition(counts))
    assert estimator.get_variable_value("global_step") == max(counts)


@pytest.mark.min_ranks(2)
def test_the_check_of_weights_goes_on(rank, size, monkeypatch):
    from tf_smddp._guards.periodic_check import _state

    monkeypatch.setenv("SMDDP_CHECK_EVERY", "2")
    training = Training(tf.function)
    counts = [0, 4, 5, 4][:size]
    with sdp.join(training.state):
        for step in range(counts[rank]):
            training.step(tf.constant(batch(rank, step)))
    training.check(*train_by_definition(counts))
    sdp.remove_process_set(_state.process_set)
    _state.forget()

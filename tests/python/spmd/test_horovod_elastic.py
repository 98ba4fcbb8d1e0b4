"""tf_smddp.horovod: elastic's states and callbacks, and what `run` begins with."""

import numpy as np
import pytest
import tensorflow as tf
from values import assert_equal

import tf_smddp as sdp
import tf_smddp.horovod.tensorflow as hvd
import tf_smddp.horovod.tensorflow.keras as hvd_keras


def dense_model():
    return tf.keras.Sequential([tf.keras.layers.InputLayer((1,)), tf.keras.layers.Dense(1)])


def test_states(rank, size):
    model = dense_model()
    model.set_weights([np.full([1, 1], rank + 1.0), np.zeros([1])])
    state = hvd_keras.elastic.KerasState(model, tf.keras.optimizers.Adam(), epoch=10 + rank)
    state.sync()
    assert (state.epoch, float(model.get_weights()[0][0, 0])) == (10, 1.0)
    model.set_weights([np.full([1, 1], 5.0), np.zeros([1])])
    state.epoch = 11
    state.restore()
    assert (state.epoch, float(model.get_weights()[0][0, 0])) == (10, 1.0)
    state.epoch = 12
    state.commit()
    state.epoch = 13
    state.restore()
    assert state.epoch == 12
    weight = tf.Variable([float(rank)])
    hvd.elastic.TensorFlowState([weight]).sync()
    assert_equal(weight.numpy(), np.zeros(1, np.float32))


class Recorded(hvd_keras.elastic.KerasState):
    """A state that says when it was committed."""

    def __init__(self, *args, **kwargs):
        self.commits = []
        super().__init__(*args, **kwargs)

    def commit(self):
        super().commit()
        self.commits.append((self.epoch, self.batch))


def test_callbacks_keep_the_state_up_to_date():
    model = dense_model()
    model.compile("sgd", "mse")
    state = Recorded(model, batch=0, epoch=3)
    callbacks = [
        hvd_keras.elastic.UpdateBatchStateCallback(state),
        hvd_keras.elastic.UpdateEpochStateCallback(state),
        hvd_keras.elastic.CommitStateCallback(state, batches_per_commit=2),
    ]
    x = np.ones((3, 1), np.float32)
    model.fit(x, x, batch_size=1, epochs=2, verbose=0, callbacks=callbacks)
    # After the second of three batches and at the end of the epoch; then the third counts from the first.
    assert state.commits == [(3, 1), (4, 0), (4, 0), (4, 2), (5, 0)]
    state.epoch = 9
    state.restore()
    assert (state.epoch, state.batch) == (5, 0)
    model.fit(x, x, epochs=1, verbose=0, callbacks=callbacks)
    assert state.epoch == 6


def test_run_without_a_folder_begins_with_rank_0s_state(rank, monkeypatch):
    """In the order of Horovod's example; smddprun does not start this job again."""
    state = hvd_keras.elastic.KerasState(dense_model(), batch=0, epoch=rank)
    state.register_reset_callbacks([lambda: pytest.fail("no state was committed before")])

    @hvd_keras.elastic.run
    def train(state, steps, last=0):
        state.commit()
        state.check_host_updates()
        return state.epoch + steps + last

    assert train(state, 3, last=4) == 7
    monkeypatch.setenv("SMDDP_RESTART_COUNT", "0")
    with pytest.raises(RuntimeError, match="give -x SMDDP_STATE_DIR=FOLDER"):
        train(state, 3)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Rank 0's, for states."""
    monkeypatch.setenv("SMDDP_STATE_DIR", sdp.broadcast_object(str(tmp_path)))


def trained(model, optimizer):
    """One step, after which the optimizer's variables are not zero."""
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean((model(tf.ones([2, 1])) - 3.0) ** 2)
    gradients = tape.gradient(loss, model.trainable_variables)
    optimizer.apply_gradients(zip(gradients, model.trainable_variables))


def values(model, optimizer):
    variables = optimizer.variables
    variables = variables() if callable(variables) else variables
    return [each.numpy() for each in [*model.weights, *variables]]


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("compiled", [True, False])
def test_a_job_that_starts_again_goes_on_at_its_last_commit(rank, compiled):
    def new_state(**named):
        model, optimizer = dense_model(), tf.keras.optimizers.Adam(0.5)
        if compiled:
            model.compile(optimizer, "mse")
        return hvd.elastic.TensorFlowKerasState(model, None if compiled else optimizer, **named)

    @hvd.elastic.run
    def train(state, fails):
        for epoch in range(state.epoch, 5):
            state.epoch = epoch
            trained(state.model, state.optimizer)
            state.commit()
            if fails and epoch == 2:
                state.names.append("lost with the start")
                trained(state.model, state.optimizer)
                raise SystemError

    first = new_state(epoch=0, names=["a"])
    first.sync()
    wanted = new_state()
    wanted.model.set_weights(first.model.get_weights())
    for _ in range(3):
        trained(wanted.model, wanted.optimizer)
    with pytest.raises(SystemError):
        train(first, fails=True)

    sizes = []
    again = new_state(epoch=0, names=[])
    again.register_reset_callbacks([lambda: sizes.append(again.epoch)])
    hvd.elastic.run(lambda state: None)(again)
    assert (again.epoch, again.names, sizes) == (2, ["a"], [2])
    for found, value in zip(values(again.model, again.optimizer), values(wanted.model, wanted.optimizer)):
        np.testing.assert_array_equal(found, value)
    train(again, fails=False)
    again.epoch = 9  # not committed, and not lost by another function
    assert hvd.elastic.run(lambda state: state.epoch)(again) == 9


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("kind", ["variables", "objects"])
def test_other_states_on_the_disk(rank, kind):
    def new_state(value):
        if kind == "objects":
            return None, hvd.elastic.ObjectState(hvd.broadcast_object, hvd.rank, batch=value)
        weight = tf.Variable([float(value)])
        return weight, hvd.elastic.TensorFlowState([weight], batch=value)

    weight, state = new_state(0)
    for value in (7, 8):
        state.batch = value
        if weight is not None:
            weight.assign([float(value)])
        state.commit()
    weight, again = new_state(0)
    hvd.elastic.run(lambda state: None)(again)
    assert again.batch == 8
    if weight is not None:
        assert_equal(weight.numpy(), np.array([8.0], np.float32))


@pytest.mark.usefixtures("folder")
def test_a_commit_to_the_disk_averages_what_local_sgd_trains(rank):
    """The state in memory, too."""
    model = dense_model()
    optimizer = sdp.LocalSGD(tf.keras.optimizers.SGD(0.5), every=5)
    sdp.broadcast_variables(model.weights, root_rank=0)
    trained(model, optimizer)
    for weight in model.trainable_variables:
        weight.assign_add(tf.fill(weight.shape, float(rank)))
    means = [sdp.oob_allreduce(each).numpy() for each in model.trainable_variables]
    state = hvd.elastic.TensorFlowKerasState(model, optimizer)
    state.commit()
    for weight in model.trainable_variables:
        weight.assign_add(tf.ones(weight.shape))
    state.restore()
    for weight, mean in zip(model.trainable_variables, means):
        np.testing.assert_allclose(weight.numpy(), mean, 1e-6)

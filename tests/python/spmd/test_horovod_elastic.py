"""tf_smddp.horovod: elastic's states and callbacks, in a job that keeps its ranks."""

import numpy as np
import pytest
import tensorflow as tf
from values import assert_equal

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


def test_a_script_for_horovods_elastic_comes_as_far_as_run():
    """In the order of Horovod's example: all before elastic.run works, and that names the remedy."""
    state = hvd_keras.elastic.KerasState(dense_model(), batch=0, epoch=0)
    state.register_reset_callbacks([lambda: pytest.fail("the number of ranks does not change")])
    state.check_host_updates()
    state.commit()
    with pytest.raises(NotImplementedError, match=r"elastic.run\('train'\).*--max-restarts"):

        @hvd_keras.elastic.run
        def train(state):
            raise AssertionError

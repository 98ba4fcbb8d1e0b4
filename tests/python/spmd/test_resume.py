"""`model.fit` with everything that belongs to it, and the same again from a checkpoint of rank 0's."""

import numpy as np
import pytest
import tensorflow as tf

import tf_smddp as sdp
from tf_smddp.keras import callbacks

EPOCHS, BATCH, STEPS = 4, 4, 3
RATE = 0.02


def make_model(seed):
    tf.keras.utils.set_random_seed(seed)
    model = tf.keras.Sequential(
        [
            tf.keras.Input((5,)),
            tf.keras.layers.Dense(8, activation="tanh"),
            sdp.SyncBatchNormalization(),
            tf.keras.layers.Dense(1),
        ]
    )
    model.compile(sdp.DistributedOptimizer(tf.keras.optimizers.Adam(RATE)), "mse", metrics=["mae"])
    return model


def fit(model, rank, size, folder, first_epoch=0):
    random = np.random.default_rng(3)
    x = random.normal(size=(STEPS, size, BATCH, 5)).astype(np.float32)[:, rank].reshape(-1, 5)
    history = model.fit(
        x,
        np.sin(x.sum(axis=1, keepdims=True)),
        batch_size=BATCH,
        epochs=EPOCHS,
        initial_epoch=first_epoch,
        shuffle=False,
        verbose=0,
        callbacks=[
            callbacks.BroadcastGlobalVariablesCallback(0),
            callbacks.MetricAverageCallback(),
            callbacks.LearningRateWarmupCallback(RATE, warmup_epochs=3),
            callbacks.LearningRateScheduleCallback(RATE, 0.5, start_epoch=3),
            callbacks.RankZeroCheckpoint(folder + "/{epoch}.keras"),
        ],
    )
    sdp.barrier()  # the files are there
    return history.history


@pytest.fixture
def folder(tmp_path):
    """Rank 0's, on all ranks."""
    return sdp.broadcast_object(str(tmp_path))


def test_it_goes_on_bit_for_bit(rank, size, folder):
    whole = make_model(seed=rank)
    history = fit(whole, rank, size, folder)
    assert history["loss"][-1] < history["loss"][0]

    half = 2
    if rank == 0:
        custom = {"BatchNormalization": sdp.SyncBatchNormalization}
        model = tf.keras.models.load_model(f"{folder}/{half}.keras", custom_objects=custom)
        sdp.DistributedOptimizer(model.optimizer)
    else:
        model = make_model(seed=100 + rank)
    rest = fit(model, rank, size, folder, first_epoch=half)

    for key, values in rest.items():
        assert values == history[key][half:], key
    assert int(model.optimizer.iterations) == EPOCHS * STEPS
    for mine, wanted in zip(model.get_weights(), whole.get_weights()):
        np.testing.assert_array_equal(mine, wanted)
    for mine in model.get_weights():
        np.testing.assert_array_equal(mine, sdp.broadcast(mine, 0))

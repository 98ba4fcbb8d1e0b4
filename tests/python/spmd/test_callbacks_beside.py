"""Callbacks of Keras that act by each rank's own metrics: averaged ones make ranks decide alike.

Without, or where all ranks write the same files, there is a warning with the remedy.
"""

import os
import time
import warnings

import numpy as np
import pytest
import tensorflow as tf
from optimizer_families import ALL, array, assert_same_on_all_ranks, each_and_tf_keras
from values import assert_equal

import tf_smddp as sdp
from tf_smddp.keras import callbacks

keras = tf.keras.callbacks
FAMILIES = each_and_tf_keras(ALL)
# Our callbacks are those of tf.keras, so they are not for tf_keras beside Keras 3.
OF_KERAS = each_and_tf_keras([family for family in ALL if not family.is_beside_keras3])


def compiled(family, rate=0.1, distributed=True, **options):
    family.keras.utils.set_random_seed(3)
    layers = family.keras.layers
    model = family.keras.Sequential([layers.InputLayer((3,)), layers.Dense(2)])
    optimizer = family.optimizers.SGD(rate)
    model.compile(sdp.DistributedOptimizer(optimizer) if distributed else optimizer, "mse", **options)
    return model


def told_by(model, others):
    features = np.ones((8, 3), np.float32)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.fit(features, features[:, :2], batch_size=4, verbose=0, callbacks=others)
    texts = [str(each.message) for each in caught]
    return [text for text in texts if "by each rank's own metrics" in text or "write the same files" in text]


@pytest.mark.parametrize("name", ["EarlyStopping", "ReduceLROnPlateau"])
@pytest.mark.parametrize(
    "before", [[], pytest.param([callbacks.BroadcastGlobalVariablesCallback], marks=pytest.mark.long)]
)
@OF_KERAS
def test_what_decides_by_own_metrics(rank, size, family, before, name):
    """It is said once, by the optimizer while Keras traces the first step, or by our callback before that."""

    def told(*kinds):
        made = [kind() for kind in (*before, *kinds)]
        return told_by(compiled(family), made)

    def decides():
        return getattr(family.keras.callbacks, name)(monitor="loss", patience=5)

    texts = told(decides)
    assert len(texts) == (rank == 0 and size > 1), texts
    for text in texts:
        assert text.startswith(f"{name} decides") and "Put MetricAverageCallback() before it" in text
    assert told(callbacks.MetricAverageCallback, decides) == []
    after = told(decides, callbacks.MetricAverageCallback)
    assert len(after) == (rank == 0 and size > 1), after


@FAMILIES
def test_no_callback_of_ours(rank, size, family):
    stopping = family.keras.callbacks.EarlyStopping(monitor="loss", patience=5)
    for times in (1, 0):
        model = compiled(family, run_eagerly=True)
        assert len(told_by(model, [stopping])) == (times if rank == 0 and size > 1 else 0)
    assert told_by(compiled(family, distributed=False), [stopping]) == []


@FAMILIES
def test_a_train_step_with_a_tape(rank, size, family):
    class Model(family.keras.Sequential):
        def train_step(self, batch):
            features, targets = batch
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean((self(features) - targets) ** 2)
            sources = [each if isinstance(each, tf.Variable) else each.value for each in self.weights]
            gradients = sdp.DistributedGradientTape(tape).gradient(loss, sources)
            self.optimizer.apply_gradients(zip(gradients, self.weights))
            return {"loss": loss}

    layers = family.keras.layers
    family.keras.utils.set_random_seed(3)
    model = Model([layers.InputLayer((3,)), layers.Dense(2)])
    model.compile(family.optimizers.SGD(0.1))
    texts = told_by(model, [family.keras.callbacks.ReduceLROnPlateau(monitor="loss")])
    assert len(texts) == (rank == 0 and size > 1), texts


@pytest.mark.parametrize("ours", [[], [callbacks.BroadcastGlobalVariablesCallback]])
def test_what_writes_on_all_ranks(rank, size, tmp_path, ours):
    def told(*others):
        return told_by(compiled(ALL[0]), [*(each() for each in ours), *others])

    path = str(tmp_path / f"{rank}.weights.h5")
    texts = told(keras.ModelCheckpoint(path, save_weights_only=True))
    assert len(texts) == (rank == 1), texts
    assert all("ModelCheckpoint is in the callbacks of rank 1, too" in text for text in texts), texts
    assert told(*([keras.ModelCheckpoint(path, save_weights_only=True)] if rank == 0 else [])) == []
    assert told(callbacks.RankZeroCheckpoint(path, save_weights_only=True)) == []


def test_a_backup_on_all_ranks(rank, tmp_path):
    texts = told_by(compiled(ALL[0]), [keras.BackupAndRestore(str(tmp_path / f"{rank}"))])
    assert len(texts) == (rank == 1), texts
    assert all("Use tf_smddp.Checkpoint" in text for text in texts), texts


@pytest.mark.parametrize("save_freq", ["epoch", pytest.param(1, marks=pytest.mark.long)])
@pytest.mark.parametrize("kind", ["ModelCheckpoint", "BackupAndRestore"])
@FAMILIES
def test_ranks_that_write_to_the_same_path_take_turns(rank, size, tmp_path, family, kind, save_freq):
    folder = sdp.broadcast_object(str(tmp_path))
    if kind == "ModelCheckpoint":
        path = f"{folder}/new/{'it.weights.h5' if family.is_keras3 else 'it'}"
        callback = family.keras.callbacks.ModelCheckpoint(path, save_weights_only=True, save_freq=save_freq)
    else:
        callback = family.keras.callbacks.BackupAndRestore(f"{folder}/new/backup", save_freq=save_freq)
    name = "_backup" if kind == "BackupAndRestore" and not family.is_keras3 else "_save_model"
    save, saved = getattr(callback, name), []

    def alone(*args, **kwargs):
        os.mkdir(f"{folder}/somebody writes")  # an error if it is there
        save(*args, **kwargs)
        time.sleep(0.02)
        os.rmdir(f"{folder}/somebody writes")
        saved.append(1)

    setattr(callback, name, alone)
    model = compiled(family)
    features = np.ones((8, 3), np.float32)
    model.fit(features, features[:, :2], batch_size=4, epochs=4, verbose=0, callbacks=[callback])
    assert len(saved) == (4 if save_freq == "epoch" else 8)
    if kind == "ModelCheckpoint":
        sdp.barrier()
        model.load_weights(path)
        assert_same_on_all_ranks(model.trainable_variables)


@FAMILIES
def test_a_class_of_the_users_may_run_a_collective_where_it_writes(tmp_path, family):
    class Meets(family.keras.callbacks.ModelCheckpoint):
        def on_epoch_end(self, *args, **kwargs):
            sdp.barrier()

    callback = Meets(f"{sdp.broadcast_object(str(tmp_path))}/it.weights.h5", save_weights_only=True)
    model = compiled(family)
    features = np.ones((8, 3), np.float32)
    model.fit(features, features[:, :2], batch_size=4, epochs=2, verbose=0, callbacks=[callback])


class Rates(tf.keras.callbacks.Callback):
    """The learning rate at the end of each epoch."""

    def __init__(self):
        super().__init__()
        self.found = []

    def on_epoch_end(self, epoch, logs=None):
        self.found.append(float(array(self.model.optimizer.learning_rate)))


@OF_KERAS
def test_ranks_that_average_their_metrics_decide_alike(rank, size, family):
    """The validation loss of rank 0 falls; that of the others rises, and the average, too."""
    keras = family.keras
    model = keras.Sequential(
        [keras.layers.InputLayer((1,)), keras.layers.Dense(1, use_bias=False, kernel_initializer="zeros")]
    )
    model.compile(sdp.DistributedOptimizer(family.optimizers.SGD(0.1)), "mse")
    ones = np.ones((2, 1), np.float32)
    rates = Rates()
    history = model.fit(
        ones,
        ones,
        validation_data=(ones, ones if rank == 0 else -ones),
        epochs=6,
        verbose=0,
        callbacks=[
            callbacks.MetricAverageCallback(),
            keras.callbacks.ReduceLROnPlateau("val_loss", factor=0.5, patience=1),
            keras.callbacks.EarlyStopping("val_loss", patience=3),
            rates,
        ],
    ).history
    # The first epoch is the best one, and the fourth the third in a row that is worse.
    wanted = [0.1, 0.05, 0.025, 0.0125] if size > 1 else 6 * [0.1]
    assert rates.found == pytest.approx(wanted)
    assert len(history["val_loss"]) == len(wanted)
    for key, values in history.items():
        assert_equal(sdp.broadcast(np.array(values), 0).numpy(), np.array(values), f"rank 0's {key}")
    assert_same_on_all_ranks(model.trainable_variables)

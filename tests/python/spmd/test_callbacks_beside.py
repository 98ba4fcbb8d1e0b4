"""Callbacks of Keras that would act differently on each rank give a warning, with the remedy."""

import warnings

import numpy as np
import pytest
import tensorflow as tf

import tf_smddp as sdp
from tf_smddp.keras import callbacks

keras = tf.keras.callbacks


def told_by(others, **compiled):
    tf.keras.utils.set_random_seed(3)
    model = tf.keras.Sequential([tf.keras.layers.InputLayer((3,)), tf.keras.layers.Dense(2)])
    model.compile(sdp.DistributedOptimizer(tf.keras.optimizers.SGD(0.1)), "mse", **compiled)
    features = np.ones((8, 3), np.float32)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.fit(
            features,
            features[:, :2],
            batch_size=4,
            verbose=0,
            callbacks=[callbacks.BroadcastGlobalVariablesCallback(), *others],
        )
    texts = [str(each.message) for each in caught]
    return [text for text in texts if "by each rank's own metrics" in text or "would write" in text]


@pytest.mark.parametrize("make", [keras.EarlyStopping, keras.ReduceLROnPlateau])
def test_what_decides_by_own_metrics(rank, size, make):
    texts = told_by([make(monitor="loss", patience=5)])
    assert len(texts) == (rank == 0 and size > 1), texts
    for text in texts:
        assert text.startswith(f"{make.__name__} decides") and "Put MetricAverageCallback() before it" in text
    assert told_by([callbacks.MetricAverageCallback(), make(monitor="loss", patience=5)]) == []
    after = told_by([make(monitor="loss", patience=5), callbacks.MetricAverageCallback()])
    assert len(after) == (rank == 0 and size > 1), after


def test_what_writes_on_all_ranks(rank, size, tmp_path):
    path = str(tmp_path / f"{rank}.weights.h5")
    texts = told_by([keras.ModelCheckpoint(path, save_weights_only=True)])
    assert len(texts) == (rank == 1), texts
    assert all("ModelCheckpoint is in the callbacks of rank 1, too" in text for text in texts), texts
    mine = [keras.ModelCheckpoint(path, save_weights_only=True)] if rank == 0 else []
    assert told_by(mine) == []
    assert told_by([callbacks.RankZeroCheckpoint(path, save_weights_only=True)]) == []


def test_a_backup_on_all_ranks(rank, tmp_path):
    texts = told_by([keras.BackupAndRestore(str(tmp_path / f"{rank}"))])
    assert len(texts) == (rank == 1), texts
    assert all("Use tf_smddp.Checkpoint" in text for text in texts), texts

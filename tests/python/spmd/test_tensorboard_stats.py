"""TensorBoardStats: what `fit` writes for TensorBoard, as its event files have it."""

import glob
import tempfile

import numpy as np
import pytest
import tensorflow as tf

import tf_smddp as sdp
from tf_smddp import keras
from tf_smddp.keras.callbacks._tensorboard_stats import scalars

NAMES = {
    "blocked_seconds",
    "blocked_share",
    "waiting_seconds_per_call",
    "imbalance_seconds",
    "slowest_rank",
    "slowest_rank_last_share",
    "bytes",
    "staged_bytes",
}


def written(folder):
    """The scalars of all event files in the folder: by name, the values by step."""
    found = {}
    for path in glob.glob(f"{folder}/*.smddp"):
        for event in tf.compat.v1.train.summary_iterator(path):
            for value in event.summary.value:
                found.setdefault(value.tag, {})[event.step] = float(tf.make_ndarray(value.tensor))
    return found


def test_an_epoch_has_its_own_figures(rank, size):
    with tempfile.TemporaryDirectory() as folder:
        model = tf.keras.Sequential([tf.keras.Input((4,)), tf.keras.layers.Dense(3)])
        model.compile(keras.DistributedOptimizer(tf.keras.optimizers.SGD(0.01)), "mse")
        callbacks = [
            keras.callbacks.BroadcastGlobalVariablesCallback(0),
            keras.callbacks.TensorBoardStats(folder),
        ]
        x = np.ones((8, 4), np.float32)
        model.fit(x, x[:, :3], batch_size=2, epochs=3, verbose=0, callbacks=callbacks)
        found = written(folder)
    if rank != 0:
        assert found == {}
        return
    assert set(found) == {f"smddp/{name}" for name in NAMES}
    # 15 weights of 4 bytes in each of 4 steps; the first epoch has the broadcast, the later ones an exchange
    # of texts before them.
    for step in (1, 2):
        assert 240 <= found["smddp/bytes"][step] < 4000
    assert all(set(values) == {0, 1, 2} for values in found.values())
    assert all(0 <= value <= 1 for value in found["smddp/blocked_share"].values())
    assert all(0 <= value < size for value in found["smddp/slowest_rank"].values())
    assert all(0 <= value <= 1 for value in found["smddp/slowest_rank_last_share"].values())


@pytest.mark.one_rank
def test_scalars():
    def rank(calls, waiting):
        return {
            "calls": calls,
            "bytes": 100.0,
            "staged_bytes": 50.0,
            "waiting_seconds": waiting,
            "blocked_seconds": 0.5,
            "steps": 20,
            "last_steps": {4.0: 1, 1.0: 19, 2.5: 0}[waiting],
            "seconds": 2.0,
        }

    found = scalars([rank(10, 4.0), rank(10, 1.0), rank(10, 2.5)])
    assert found == pytest.approx(
        {
            "blocked_seconds": 0.5,
            "blocked_share": 0.25,
            "waiting_seconds_per_call": 0.25,
            "imbalance_seconds": 0.3,
            "slowest_rank": 1,
            "slowest_rank_last_share": 0.95,
            "bytes": 100.0,
            "staged_bytes": 50.0,
        }
    )


def test_bad_path():
    with pytest.raises(TypeError, match=r"path of a folder.* but got 3"):
        keras.callbacks.TensorBoardStats(3)
    sdp.barrier()

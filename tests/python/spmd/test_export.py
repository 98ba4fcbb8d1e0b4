"""Models with overlap and SyncBatchNormalization load where tf_smddp is not installed."""

import copy
import json
import os
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

import tf_smddp as sdp

pytestmark = pytest.mark.slow

IS_KERAS_2 = not hasattr(tf.keras, "ops")

# Loads and predicts in a process that has no tf_smddp.
WITHOUT_TF_SMDDP = """
import json, os, sys
sys.modules["tf_smddp"] = None
import numpy as np, tensorflow as tf
folder, x = sys.argv[1], np.load(sys.argv[1] + "/x.npy")
found = {}
for name in sorted(os.listdir(folder)):
    path = os.path.join(folder, name)
    if name.startswith("model"):
        model = tf.keras.models.load_model(path, compile=False)
        found[name] = model(x).numpy().tolist()
        found[name + " layers"] = sorted({type(layer).__module__.split(".")[0] for layer in model.layers})
        model(x, training=True)
    elif name.startswith("saved"):
        module = tf.saved_model.load(path)
        call = module.serve if hasattr(module, "serve") else module
        found[name] = call(tf.constant(x)).numpy().tolist()
        if "training" in name:
            found[name + " training"] = module(tf.constant(x), True).numpy().tolist()
assert sys.modules["tf_smddp"] is None
print("FOUND" + json.dumps(found))
"""


def model():
    return tf.keras.Sequential(
        [
            tf.keras.Input((3,)),
            tf.keras.layers.Dense(4, name="first"),
            sdp.SyncBatchNormalization(name="normalization"),
            tf.keras.layers.Dense(2, name="last"),
        ]
    )


def with_overlap():
    """Its gradients are traced, too, and go with it."""
    variable = tf.Variable([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])

    class Marked(tf.Module):
        @tf.function(input_signature=[tf.TensorSpec([None, 3])])
        def __call__(self, x):
            return sdp.overlap(tf.matmul(sdp.overlap(x), variable))

    module = Marked()
    module.variable = variable
    return module


def mentions_our_ops(folder):
    for directory, _, names in os.walk(folder):
        for name in names:
            with open(os.path.join(directory, name), "rb") as file:
                if b"Smddp" in file.read():
                    return True
    return False


@pytest.fixture(scope="module")
def trained():
    """A model after two steps of fit(), on all ranks."""
    x = np.random.RandomState(sdp.rank()).normal(size=(8, 3)).astype(np.float32)
    trained = model()
    trained.compile("sgd", "mse")
    trained.fit(x, x[:, :1], batch_size=4, verbose=0)
    return trained


@pytest.mark.one_tensorflow
def test_export(rank, trained, tmp_path):
    x = np.random.RandomState(7).normal(size=(5, 3)).astype(np.float32)
    if rank == 0:
        np.save(tmp_path / "x.npy", x)
        trained.save(tmp_path / "model.keras")
        trained.save(tmp_path / "model.h5")
        marked = with_overlap()
        if IS_KERAS_2:
            trained.save(tmp_path / "model_folder", save_format="tf")  # with the functions that train
            tf.saved_model.save(trained, str(tmp_path / "saved_training"))
        else:
            trained.export(tmp_path / "saved_model", verbose=False)
        tf.saved_model.save(marked, str(tmp_path / "saved_overlap"))
        options = tf.saved_model.SaveOptions(experimental_custom_gradients=True)
        tf.saved_model.save(marked, str(tmp_path / "saved_overlap_gradients"), options=options)
        assert not mentions_our_ops(tmp_path)

        environ = {
            key: value for key, value in os.environ.items() if not key.startswith(("SMDDP_", "PYTHONPATH"))
        }
        process = subprocess.run(
            [sys.executable, "-c", WITHOUT_TF_SMDDP, str(tmp_path)],
            cwd=tmp_path,
            env={**environ, "TF_CPP_MIN_LOG_LEVEL": "3"},
            capture_output=True,
            text=True,
            timeout=50,
            check=False,
        )
        assert process.returncode == 0, process.stderr
        found = json.loads(process.stdout.split("FOUND")[1])
        wanted = trained.predict(x, verbose=0)
        names = [name for name in found if not name.endswith((" layers", " training"))]
        assert len(names) == (6 if IS_KERAS_2 else 5)
        for name in names:
            expected = marked(tf.constant(x)).numpy() if "overlap" in name else wanted
            np.testing.assert_allclose(found[name], expected, 1e-5, 1e-6, err_msg=name)
        package = tf.keras.layers.Dense.__module__.split(".")[0]
        assert all(value == [package] for name, value in found.items() if name.endswith(" layers")), found
    sdp.barrier()


def test_loading_it_here(rank, trained, tmp_path):
    """As the stock layer; by custom_objects as ours."""
    for name in ("model.keras", "model.h5"):
        trained.save(tmp_path / name)
        plain = tf.keras.models.load_model(tmp_path / name, compile=False)
        assert type(plain.get_layer("normalization")) is tf.keras.layers.BatchNormalization
        ours = tf.keras.models.load_model(
            tmp_path / name, custom_objects={"BatchNormalization": sdp.SyncBatchNormalization}, compile=False
        )
        assert type(ours.get_layer("normalization")) is sdp.SyncBatchNormalization
        with tf.keras.utils.custom_object_scope({"BatchNormalization": sdp.SyncBatchNormalization}):
            copied = copy.deepcopy(trained)
        assert type(copied.get_layer("normalization")) is sdp.SyncBatchNormalization
        for found, wanted in zip(ours.get_weights(), trained.get_weights()):
            assert found.tobytes() == wanted.tobytes()


def test_weights_of_the_stock_layer(tmp_path):
    """They fit, in both directions."""
    ours = model()
    stock = tf.keras.models.clone_model(
        ours,
        clone_function=lambda layer: (
            tf.keras.layers.BatchNormalization if "normal" in layer.name else type(layer)
        ).from_config(layer.get_config()),
    )
    ours.save_weights(tmp_path / "our.weights.h5")
    stock.load_weights(tmp_path / "our.weights.h5")
    stock.save_weights(tmp_path / "stock.weights.h5")
    ours.load_weights(tmp_path / "stock.weights.h5")
    for found, wanted in zip(stock.get_weights(), ours.get_weights()):
        assert found.tobytes() == wanted.tobytes()

"""The import paths of SMDDP lead to tf_smddp, beside other distributions' smdistributed packages."""

import importlib
import importlib.metadata
import os
import pathlib
import re
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

import smddp
import smddpcommon
import smdistributed.dataparallel
import smdistributed.dataparallel.tensorflow
import smdistributed.dataparallel.tensorflow.keras
import smdistributed.dataparallel.tensorflow.keras.callbacks
import tf_smddp
import tf_smddp.keras
import tf_smddp.keras.callbacks
from smdistributed.dataparallel import exceptions
from smdistributed.dataparallel.tensorflow.keras import callbacks as keras_callbacks

pytestmark = pytest.mark.one_rank

PAIRS = {
    "smdistributed.dataparallel.tensorflow": tf_smddp,
    "smdistributed.dataparallel.tensorflow.keras": tf_smddp.keras,
    "smdistributed.dataparallel.tensorflow.keras.callbacks": tf_smddp.keras.callbacks,
}


@pytest.mark.parametrize("path", PAIRS)
def test_the_same_objects(path):
    module, ours = importlib.import_module(path), PAIRS[path]
    assert module.__all__ == ours.__all__
    assert sorted(ours.__all__) == [name for name in ours.__all__ if hasattr(ours, name)]
    for name in ours.__all__:
        if name != "callbacks":  # that is a module here, too
            assert getattr(module, name) is getattr(ours, name), name


def test_smddp_is_in_the_same_job(rank, size):
    numbers = np.full([2, 3], rank + 1.0, np.float32)
    smddp.allreduce(numbers, label="of NumPy")
    assert (smddp.rank(), smddp.size()) == (rank, size) and (numbers == size * (size + 1) / 2).all()


def test_callbacks():
    module = smdistributed.dataparallel.tensorflow.keras.callbacks
    assert module is keras_callbacks
    assert (
        module.BroadcastGlobalVariablesCallback is tf_smddp.keras.callbacks.BroadcastGlobalVariablesCallback
    )


def test_keras_has_what_tf_smddp_has():
    assert set(tf_smddp.keras.__all__) == {*tf_smddp.__all__, "callbacks"}
    for name in set(tf_smddp.keras.__all__) - {"callbacks"}:
        assert getattr(tf_smddp.keras, name) is getattr(tf_smddp, name), name


def test_profiler():
    assert smdistributed.dataparallel.start_profiler is tf_smddp.start_profiler
    assert smdistributed.dataparallel.stop_profiler is tf_smddp.stop_profiler
    with pytest.raises(AttributeError, match="has no attribute 'pause_profiler'"):
        _ = smdistributed.dataparallel.pause_profiler


def test_exceptions_are_what_collectives_raise():
    assert all(issubclass(getattr(exceptions, name), Exception) for name in exceptions.__all__)


def test_another_distribution_of_the_namespace(rank, tmp_path):
    """Before and after ours on the path. No TensorFlow is imported for it."""
    assert getattr(sys.modules["smdistributed"], "__file__", None) is None
    other = tmp_path / "smdistributed" / "modelparallel"
    other.mkdir(parents=True)
    (other / "__init__.py").write_text("name = 'the other one'\n")
    ours = str(pathlib.Path(smdistributed.dataparallel.__file__).parents[2])
    script = (
        "import smdistributed.dataparallel, smdistributed.modelparallel as other, sys\n"
        "assert other.name == 'the other one'\n"
        "assert 'tensorflow' not in sys.modules\n"
    )
    for path in ([ours, str(tmp_path)], [str(tmp_path), ours]):
        environ = {**os.environ, "PYTHONPATH": os.pathsep.join(path)}
        subprocess.run([sys.executable, "-c", script], check=True, env=environ, timeout=30)


def test_set_bucket_size_after_init(monkeypatch):
    monkeypatch.setattr(smddpcommon, "_warned", False)
    monkeypatch.setenv("SMDDP_BUCKET_CAP_BYTES", "256")
    with pytest.warns(UserWarning, match=r"setBucketSize\(1280\) was called after init\(\)"):
        smddpcommon.setBucketSize(1280)
    smddpcommon.setBucketSize(2560)  # silent
    assert os.environ["SMDDP_BUCKET_CAP_BYTES"] == "2560"


@pytest.mark.parametrize("size_bytes", [0, -128, 130])
def test_set_bucket_size_to_a_wrong_value(size_bytes):
    with pytest.raises(ValueError, match=f"a positive multiple of 128 bytes, but got {size_bytes}"):
        smddpcommon.setBucketSize(size_bytes)


@pytest.mark.parametrize("size_bytes", [1024.0, "1024", None, True])
def test_set_bucket_size_to_a_wrong_type(size_bytes):
    with pytest.raises(TypeError, match="as an integer, but got"):
        smddpcommon.setBucketSize(size_bytes)


def test_dir_and_version():
    assert dir(tf_smddp) == sorted([*tf_smddp.__all__, "__version__"])
    assert tf_smddp.__version__ == importlib.metadata.version("tf_smddp")


def test_metadata():
    metadata = importlib.metadata.metadata("tf_smddp")
    assert metadata["Author"] == "The tf_smddp authors"
    assert metadata.get("License-Expression", metadata.get("License")) == "Apache-2.0"
    assert metadata["Summary"]
    assert metadata.get_payload().startswith("# tf_smddp")


def test_extras():
    """Those of `pip install '.[…]'` in the source's folder. TensorFlow's client for S3 is for 2.15."""
    required = importlib.metadata.requires("tf_smddp")
    extras = importlib.metadata.metadata("tf_smddp").get_all("Provides-Extra")
    assert set(extras) == {"examples", "io", "mpi"}
    packages = {
        extra: sorted(re.split(r"[^\w-]", each)[0] for each in required if f'extra == "{extra}"' in each)
        for extra in extras
    }
    for_s3 = ["tensorflow-io"] if tf.__version__.startswith("2.15.") else []
    assert packages == {"examples": ["rich", "scikit-learn"], "io": for_s3, "mpi": ["mpich"]}

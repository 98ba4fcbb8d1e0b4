"""Scripts that know SMDDP's names only, run as they are: N ranks equal one rank with the large batch."""

import importlib.util
import pathlib

import numpy as np
import pytest
import tensorflow as tf
from harness import run_job

SCRIPTS = pathlib.Path(__file__).with_name("scripts")
NAMES = ["smddp_guide", "smddp_keras_fit", "smddp_monitored_session"]
# `make test` runs the estimator where there is one, and the guide's training loop elsewhere.
LONG = ["smddp_keras_fit", "smddp_monitored_session"]
if hasattr(tf, "estimator") or importlib.util.find_spec("tensorflow_estimator"):
    NAMES.append("smddp_estimator")
    LONG = ["smddp_guide", "smddp_keras_fit", "smddp_monitored_session"]


def weights_of(name, size, batch_size, folder):
    """Runs the script; returns the weights that each rank has in the end."""
    folder.mkdir()
    job = run_job(
        size,
        str(SCRIPTS / f"{name}.py"),
        "--output",
        str(folder),
        "--batch-size",
        str(batch_size),
        seconds=120,
    )
    assert job.exit_code == 0, str(job)
    found = []
    for rank in range(size):
        with np.load(folder / f"weights.{rank}.npz") as arrays:
            found.append([arrays[key] for key in arrays.files])
    return found


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.long) if name in LONG else name for name in NAMES]
)
def test_two_ranks_equal_one_with_the_large_batch(name, tmp_path):
    first, second = weights_of(name, 2, 16, tmp_path / "two")
    (alone,) = weights_of(name, 1, 32, tmp_path / "one")
    assert len(first) >= 3
    for mine, others, large_batch in zip(first, second, alone):
        np.testing.assert_array_equal(mine, others)
        np.testing.assert_allclose(mine, large_batch, rtol=2e-4, atol=2e-5)

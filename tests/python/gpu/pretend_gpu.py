"""The shared part of the tests of TensorFlow's builds for GPUs."""

import pathlib
import sys

import pytest
from harness import run_job

FOLDER = pathlib.Path(sys.prefix) / "pretend_gpu"  # what takes the place of CUDA's libraries

GROWTH = """
import numpy as np

for gpu in tf.config.list_physical_devices("GPU"):
    tf.config.experimental.set_memory_growth(gpu, True)


def on(device, tensor):
    assert tensor.device.endswith(device), tensor.device
    return tensor
"""

OWN_GPU = """
physical = tf.config.list_physical_devices("GPU")
tf.config.set_visible_devices(physical[sdp.local_rank() % len(physical)], "GPU")
"""


def first_and_long(values):
    """The first value, and the others for `make test-all`."""
    first, *others = values
    return [first, *(pytest.param(each, marks=pytest.mark.long) for each in others)]


def run(script, num_processes=1):
    job = run_job(num_processes, GROWTH + script, launcher=num_processes > 1)
    assert job.exit_code == 0, str(job)
    return job

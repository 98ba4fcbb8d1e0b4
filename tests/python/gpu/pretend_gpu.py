"""What the tests of TensorFlow's builds for GPUs have in common."""

from harness import run_job

GROWTH = """
import numpy as np

for gpu in tf.config.list_physical_devices("GPU"):
    tf.config.experimental.set_memory_growth(gpu, True)


def on(device, tensor):
    assert tensor.device.endswith(device), tensor.device
    return tensor
"""


def run(script, num_processes=1):
    job = run_job(num_processes, GROWTH + script, launcher=num_processes > 1)
    assert job.exit_code == 0, str(job)
    return job

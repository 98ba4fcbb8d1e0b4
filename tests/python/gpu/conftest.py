"""Puts the pretend GPU (tests/pretend_gpu) in the place of CUDA, or runs the tests on a real one."""

import importlib.metadata
import os

import pytest
from pretend_gpu import FOLDER


def pytest_addoption(parser):
    parser.addoption(
        "--real-gpus",
        type=int,
        metavar="N",
        help="runs the tests on the N GPUs of this machine, and skips those that need more",
    )


def pytest_collection_modifyitems(config, items):
    if config.getoption("--real-gpus") is None:
        return
    left_out = [item for item in items if item.get_closest_marker("pretend_gpu")]
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if item not in left_out]


@pytest.fixture
def gpus(monkeypatch, request):
    """Gives the jobs of a test so many pretend GPUs, which behave as the policy says."""
    real = request.config.getoption("--real-gpus")

    def give(count, policy="random"):
        if real is not None:
            if count > real:
                pytest.skip(f"it needs {count} GPUs, and {real} can be used")
            monkeypatch.setenv("CUDA_VISIBLE_DEVICES", ",".join(map(str, range(count))))
            return
        monkeypatch.setenv("LD_LIBRARY_PATH", str(FOLDER))
        monkeypatch.setenv("PATH", str(FOLDER), prepend=os.pathsep)
        monkeypatch.setenv("PRETEND_GPU_KERNELS", str(FOLDER / "libtensorflow_twins.so"))
        monkeypatch.setenv("PRETEND_GPU_DEVICES", str(count))
        if importlib.metadata.version("tensorflow").startswith("2.15."):
            monkeypatch.setenv("PRETEND_GPU_CUDNN", "8")
            monkeypatch.setenv("XLA_FLAGS", "--xla_gpu_graph_level=0")
        else:
            monkeypatch.setenv("XLA_FLAGS", "--xla_gpu_enable_command_buffer=")
        monkeypatch.setenv("PRETEND_GPU_POLICY", policy)

    return give

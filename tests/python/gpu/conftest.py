"""Puts the pretend GPU (tests/pretend_gpu) in the place of CUDA."""

import importlib.metadata
import os

import pytest
from pretend_gpu import FOLDER


@pytest.fixture
def gpus(monkeypatch):
    """Gives the jobs of a test so many pretend GPUs, which behave as the policy says."""

    def give(count, policy="random"):
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

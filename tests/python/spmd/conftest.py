"""The SPMD suite: every rank of a job runs all of it, in the same order.

    smddprun -np 2 python -m pytest tests/python/spmd

A test that fails on one rank leaves the ranks at different places, so with more than one rank the first
failure ends the suite; a test that hangs ends it after a time limit. A plain pytest is rank 0 of 1.
"""

import faulthandler
import gc
import os
import sys
import threading

import pytest

# Auto-clustering, where a test asks for it, on CPUs too and however small.
os.environ["TF_XLA_FLAGS"] = (
    f"{os.environ.get('TF_XLA_FLAGS', '')} --tf_xla_cpu_global_jit --tf_xla_min_cluster_size=1"
)
# LLVM's optimisations take a third of the time of tests that compile, and run after all that concerns us.
os.environ["XLA_FLAGS"] = f"--xla_backend_optimization_level=0 {os.environ.get('XLA_FLAGS', '')}".strip()
# TensorFlow's objects stay, and are many: looking through them again and again takes a fifth of the time.
gc.disable()
import tf_smddp as sdp  # noqa: E402

LIMIT_SECONDS = 60.0


def pytest_configure(config):
    sdp.init()
    if sdp.size() > 1:
        config.option.maxfail = 1


def pytest_collection_finish():
    gc.enable()
    gc.freeze()


@pytest.fixture
def rank() -> int:
    return sdp.rank()


@pytest.fixture
def size() -> int:
    return sdp.size()


@pytest.fixture(autouse=True)
def time_limit(request):
    def end():
        # pytest has put files in the place of stdout and stderr.
        request.config.pluginmanager.getplugin("capturemanager").suspend_global_capture()
        print(f"{request.node.nodeid} took longer than {LIMIT_SECONDS:g} s", file=sys.__stderr__)
        faulthandler.dump_traceback(file=sys.__stderr__)
        os._exit(3)

    timer = threading.Timer(LIMIT_SECONDS, end)
    timer.daemon = True
    timer.start()
    yield
    timer.cancel()

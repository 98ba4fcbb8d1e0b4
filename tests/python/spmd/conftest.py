"""The SPMD suite: every rank of a job runs all of it, in the same order.

    smddprun -np 2 python -m pytest tests/python/spmd

A test that fails on one rank leaves the ranks at different places, so with more than one rank the first
failure ends the suite; a test that hangs ends it after a time limit. A plain pytest is rank 0 of 1.
"""

import contextlib
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
import modes  # noqa: E402
import tensorflow as tf  # noqa: E402
import values  # noqa: E402

import tf_smddp as sdp  # noqa: E402
from tf_smddp._graphs import op_parts  # noqa: E402
from tf_smddp._guards import loop_check  # noqa: E402

LIMIT_SECONDS = 60.0

# A GPU would round the factors of matrix products to 10 bits, and tests compare results of several ways.
tf.config.experimental.enable_tensor_float_32_execution(False)


# Files that --collectives-on-gpu leaves out, beside tests with the mark `cpu_only`: XLA but in
# test_collectives.py, which has all types, since the pretend GPU knows few of the instructions of XLA's
# kernels (tests/python/gpu has more), and variables stay on the CPU; other programs, which place
# TensorFlow's ops by themselves; random programs, which gather rows, look at graphs and use XLA;
# gradients of rows, for which TensorFlow slices with kernels that the pretend GPU does not have; the memory
# that kernels take; texts that TensorFlow cuts in functions of two devices; where tensors of the CPU lie;
# gradients of large tables, whose rows are not gathered where there are GPUs; and tf.distribute's strategy,
# which places all of a step on the GPU (tests/python/gpu has one).
NOT_ON_GPU = (
    "test_datasets.py",
    "test_export.py",
    "test_gradients_of_rows.py",
    "test_kernel_cache.py",
    "test_large_tables.py",
    "test_strategy.py",
    "test_strategy_keras.py",
    "test_texts.py",
    "test_training_programs.py",
    "test_xla.py",
    "test_xla_order.py",
    "test_xla_process_sets.py",
    "test_zero_copy.py",
)
COMPILED_ON_GPU = ("test_collectives.py",)
# Files that ranks on several hosts leave out: the memory of kernels, beside which MPI takes some of its own.
NOT_ON_HOSTS = ("test_kernel_cache.py",)


def pytest_addoption(parser):
    parser.addoption(
        "--collectives-on-gpu",
        action="store_true",
        help="puts our ops on the rank's GPU, and all others on the CPU: the pretend GPU has few kernels",
    )


def put_collectives_on_gpu():
    make_graph, run_thread = tf.Graph.__init__, threading.Thread.run

    def make_graph_on_cpu(graph, *args, **kwargs):
        make_graph(graph, *args, **kwargs)
        graph._add_device_to_stack("/device:CPU:0")

    def run_thread_on_cpu(thread):
        with tf.device("/device:CPU:0"):
            run_thread(thread)

    gpus = tf.config.list_physical_devices("GPU")
    tf.config.set_visible_devices(gpus[sdp.local_rank() % len(gpus)], "GPU")
    values.roundings = sdp.size() + 2 if 1 < sdp.size() <= len(gpus) else 0
    tf.Graph.__init__, threading.Thread.run = make_graph_on_cpu, run_thread_on_cpu
    modes.compiled_for = "/device:GPU:0"
    op_parts.placement = lambda: tf.device("/device:GPU:0")


def on_several_hosts():
    return sdp.local_size() < sdp.size()


def pytest_ignore_collect(collection_path, config):
    if config.getoption("--collectives-on-gpu") and collection_path.name in NOT_ON_GPU:
        return True
    if on_several_hosts() and collection_path.name in NOT_ON_HOSTS:
        return True
    return None


def pytest_collection_modifyitems(config, items):
    if not config.getoption("--collectives-on-gpu"):
        return
    left_out = [
        item
        for item in items
        if item.get_closest_marker("cpu_only")
        or ("jit" in item.name and item.path.name not in COMPILED_ON_GPU)
    ]
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if item not in left_out]


def pytest_configure(config):
    sdp.init()
    if config.getoption("--collectives-on-gpu"):
        put_collectives_on_gpu()
    if on_several_hosts():
        values.roundings = sdp.size() + 2
    if sdp.size() > 1 and not config.option.maxfail:
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
def device_scope(request):
    on_gpu = request.config.getoption("--collectives-on-gpu")
    with tf.device("/device:CPU:0") if on_gpu else contextlib.nullcontext():
        yield


@pytest.fixture(autouse=True)
def no_comparison_in_loops(monkeypatch):
    """Other tests have left variables that differ, and some tests count what is sent (test_loop_check.py)."""
    monkeypatch.setattr(loop_check, "_period", lambda count: 0)


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

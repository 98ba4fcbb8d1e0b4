"""On a machine with an accelerator for which we have no kernels, scripts run: the collectives are on the CPU.

The accelerator is a pretend one, in the host's memory: accelerator/accelerator.cc.
"""

import importlib.util
import pathlib
import subprocess

import pytest
from harness import run_job

SOURCE = pathlib.Path(__file__).parent / "accelerator" / "accelerator.cc"

SCRIPT = """
import contextlib, warnings
import numpy as np
from tensorflow.python.framework import load_library

load_library.load_pluggable_device_library(sys.argv[1])
soft = sys.argv[2] == "soft"
tf.config.set_soft_device_placement(soft)
sdp.init()
rank, size = sdp.rank(), sdp.size()
v1 = tf.compat.v1
DEVICE = "/TEST_ACCELERATOR:0"
SUM = sdp.ReduceOp.SUM
COLLECTIVES = {
    "allreduce": lambda x: sdp.allreduce(x, 0, 1, op=SUM),
    "grouped_allreduce": lambda x: sdp.grouped_allreduce([x, x], op=SUM)[1],
    "scaled": lambda x: sdp.allreduce(x, 0, 1, op=SUM, prescale_factor=0.5),
    "oob_allreduce": lambda x: sdp.oob_allreduce(x, op=SUM),
    "broadcast": lambda x: sdp.broadcast(x, 1),
    "allgather": sdp.allgather,
    "reducescatter": lambda x: sdp.reducescatter(x, op=SUM),
    "alltoall": sdp.alltoall,
    "overlap": sdp.overlap,
}


def there(tensor):
    assert "TEST_ACCELERATOR" in tensor.device, tensor.device
    return tensor


with tf.device(DEVICE):
    x = there(tf.identity(tf.constant([rank + 1.0, 10.0])))
    variable = tf.Variable([rank + 1.0, 20.0])
    there(variable.handle)
scopes = {"no scope": contextlib.nullcontext, "scope": lambda: tf.device(DEVICE)}
for scope_name, scope in scopes.items():
    for mode_name, mode in {"eager": lambda function: function, "function": tf.function}.items():
        found = {}
        for name, collective in COLLECTIVES.items():
            with scope():
                found[name] = mode(collective)(x).numpy().tolist()
            if scope_name == "no scope":
                continue

            def inside(value, collective=collective):
                with scope():
                    return collective(value)

            assert found[name] == mode(inside)(x).numpy().tolist(), name

        def others():
            with scope():
                sdp.barrier()
                sdp.broadcast_variables([variable], 1)
                return tf.identity(sdp.allreduce(variable, 0, 1, op=SUM))

        with scope():
            variable.assign([rank + 1.0, 20.0])
        found["variable"] = mode(others)().numpy().tolist()
        report(f"{scope_name} {mode_name}", found)
    found = {}
    for name, collective in COLLECTIVES.items():
        with tf.Graph().as_default(), scope():
            with tf.device(DEVICE):
                value = tf.identity(tf.constant([rank + 1.0, 10.0]))
            result = collective(value)
            if scope_name == "scope":
                result = there(tf.identity(result))
            with v1.Session(config=v1.ConfigProto(allow_soft_placement=soft)) as session:
                found[name] = session.run(result).tolist()
    with tf.Graph().as_default(), scope():
        with tf.device(DEVICE):
            in_graph = v1.get_variable("v", initializer=[rank + 1.0, 20.0], use_resource=True)
        everywhere = sdp.broadcast_global_variables(1)
        result = sdp.allreduce(in_graph, 0, 1, op=SUM)
        with v1.Session(config=v1.ConfigProto(allow_soft_placement=soft)) as session:
            session.run(v1.global_variables_initializer())
            session.run(everywhere)
            found["variable"] = session.run(result).tolist()
    report(f"{scope_name} session", found)


def trains(step):
    # All ranks start from the root's value, and then compute w = w - 0.1 * mean(x), with x = 1, 2, ...
    with tf.device(DEVICE):
        weight = tf.Variable([[float(rank)]])
        there(weight.handle)
        sdp.broadcast_variables([weight], 0)
        for _ in range(2):
            step(weight, tf.constant([[rank + 1.0]]))
    return weight.numpy().item()


def by_tape(weight, features):
    with tf.device(DEVICE):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.matmul(features, weight))
        tape = sdp.DistributedGradientTape(tape)
        weight.assign_sub(0.1 * tape.gradient(loss, weight))


def with_optimizer(optimizer):
    def step(weight, features):
        with tf.device(DEVICE):
            with tf.GradientTape() as tape:
                loss = tf.reduce_sum(tf.matmul(features, weight))
            optimizer.apply_gradients([(tape.gradient(loss, weight), weight)])

    return step


if soft:  # TensorFlow's matmul has no kernel there either
    report("tape", [trains(by_tape), trains(tf.function(by_tape))])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        optimizers = [
            sdp.DistributedOptimizer(tf.keras.optimizers.SGD(0.1), device_dense="/gpu:0") for _ in range(2)
        ]
    report("warnings", [str(each.message) for each in caught if "device_dense" in str(each.message)])
    eager, traced = map(with_optimizer, optimizers)
    report("optimizer", [trains(eager), trains(tf.function(traced))])
    with tf.device(DEVICE):
        model = tf.keras.Sequential([tf.keras.Input((1,)), tf.keras.layers.Dense(1, use_bias=False)])
        model.compile(sdp.DistributedOptimizer(tf.keras.optimizers.SGD(0.25)), "mse", jit_compile=False)
        sdp.broadcast_variables(model.variables, 0)
        model.fit(np.ones([4, 1]), np.ones([4, 1]) * rank, batch_size=2, epochs=12, verbose=0)
    report("fit", model.get_weights()[0].item())
"""


@pytest.fixture(scope="module")
def accelerator(tmp_path_factory):
    """The plugin, compiled for this TensorFlow."""
    tensorflow = importlib.util.find_spec("tensorflow").submodule_search_locations[0]
    library = tmp_path_factory.mktemp("accelerator") / "accelerator.so"
    command = ["c++", "-std=c++17", "-O1", "-shared", "-fPIC", "-Wall", "-Werror", "-o", str(library)]
    links = [f"-L{tensorflow}", "-l:libtensorflow_framework.so.2"]
    subprocess.run([*command, str(SOURCE), f"-I{tensorflow}/include", *links], check=True, timeout=60)
    return str(library)


@pytest.mark.long
@pytest.mark.one_tensorflow
@pytest.mark.parametrize("placement", ["soft", "strict"])
def test_collectives(accelerator, placement):
    job = run_job(2, SCRIPT, accelerator, placement)
    assert job.exit_code == 0, str(job)
    for rank, report in enumerate(job.reports):
        own = [[1.0, 10.0], [2.0, 10.0]]
        wanted = {
            "allreduce": [3.0, 20.0],
            "grouped_allreduce": [3.0, 20.0],
            "scaled": [1.5, 10.0],
            "oob_allreduce": [3.0, 20.0],
            "broadcast": own[1],
            "allgather": own[0] + own[1],
            "reducescatter": [[3.0], [20.0]][rank],
            "alltoall": [[1.0, 2.0], [10.0, 10.0]][rank],
            "overlap": own[rank],
            "variable": [4.0, 40.0],
        }
        for scope in ("no scope", "scope"):
            for mode in ("eager", "function", "session"):
                assert report[f"{scope} {mode}"] == wanted, f"{scope} {mode} of {job}"
        if placement == "soft":
            assert report["tape"] == report["optimizer"] == pytest.approx([-0.3, -0.3])
            assert report["fit"] == pytest.approx(0.5)
            assert len(report["warnings"]) == 1 and "device_dense='/gpu:0'" in report["warnings"][0]

"""NCCL between hosts: ranks of two network namespaces, which MPI joins, with a pretend GPU each."""

import contextlib
import os
import pathlib
import re
import signal
import sys
import time

import pytest
from pretend_gpu import GROWTH

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "launchers"))

from foreign_jobs import Bench
from test_host_faults import start
from test_hosts import launch, wait_for
from virtual_hosts import VirtualHosts

pytestmark = pytest.mark.long

# Each host has a GPU for each of its ranks. The pretend NCCL is told that these are not the other host's.
INIT = f"""
import hashlib, os
os.environ["NCCL_HOSTID"] = os.uname().nodename
import tensorflow as tf
import tf_smddp as sdp
sdp.init()
{GROWTH}
physical = tf.config.list_physical_devices("GPU")
tf.config.set_visible_devices(physical[sdp.local_rank()], "GPU")
RANK, SIZE = sdp.rank(), sdp.size()

def nccl_bytes(kind):
    return sdp.stats()["collectives"][kind]["nccl_bytes"]
"""

# Each rank has another input, so the weights are equal only if the gradients are averaged over all ranks.
TRAIN = (
    INIT
    + """
STEPS, RATE = 20, np.float32(0.05)
LENGTHS = (1, 300, 20_000)
with tf.device("/GPU:0"):
    weights = [tf.Variable(tf.fill([length], tf.constant(float(RANK + 1)))) for length in LENGTHS]
    sdp.broadcast_variables(weights, root_rank=0)
    scale = tf.constant(1.0 + RANK)

    @tf.function
    def step():
        with tf.GradientTape() as tape:
            errors = [scale * weight - 3.0 for weight in weights]
            losses = [error * error for error in errors]
        tape = sdp.DistributedGradientTape(tape)
        for weight, gradient in zip(weights, tape.gradient(losses, weights)):
            weight.assign_sub(RATE * gradient)

    for _ in range(STEPS):
        step()

expected = np.float64(1)
for _ in range(STEPS):
    gradients = [2 * (1 + rank) * ((1 + rank) * expected - 3) for rank in range(SIZE)]
    expected -= RATE * np.mean(gradients)
for weight in weights:
    assert weight.device.endswith("GPU:0"), weight.device
    np.testing.assert_allclose(weight.numpy(), expected, rtol=1e-4)
assert nccl_bytes("allreduce") >= STEPS * 4 * sum(LENGTHS), nccl_bytes("allreduce")
assert nccl_bytes("broadcast") >= 4 * sum(LENGTHS), nccl_bytes("broadcast")
digest = hashlib.sha256(np.concatenate([weight.numpy() for weight in weights]).tobytes()).hexdigest()
os.write(1, f"trained: rank {RANK} on {os.uname().nodename}, {digest}\\n".encode())
"""
)

# Sums for ever, until one fails.
FOREVER = (
    INIT
    + """
try:
    with tf.device("/GPU:0"):
        for step in range(100_000):
            total = sdp.allreduce(tf.ones(5_000), 0, 1, op=sdp.ReduceOp.SUM)
            if step == 10:
                assert total.numpy().tolist() == [SIZE] * 5_000 and nccl_bytes("allreduce") > 0
                os.write(1, f"pid of {RANK}: {os.getpid()}\\n".encode())
except tf.errors.InternalError as error:
    os.write(1, f"error of {RANK}: {error}\\n".encode())
    os._exit(3)
"""
)


@pytest.fixture
def bench():
    """Runs the test's commands. The test fails if anything of them remains."""
    with Bench() as made:
        yield made


def words_of(bench, script):
    path = bench.folder / "job.py"
    path.write_text(script)
    return [sys.executable, path]


@pytest.mark.parametrize(
    "kind, counts, policy",
    [
        ("openmpi4", (1, 1), "random"),
        ("openmpi4", (2, 1), "random"),
        ("openmpi4", (2, 2), "lazy"),
        ("mpich", (1, 1), "compute=lazy,*=prompt"),
    ],
)
def test_training(bench, gpus, kind, counts, policy):
    gpus(max(counts), policy)
    with VirtualHosts(2) as hosts:
        ended = bench.run(*launch(kind, hosts, counts, words_of(bench, TRAIN)))
    assert ended.code == 0, ended.output
    lines = ended.lines("trained: ")
    places = [f"h{host}," for host in (0, 1) for _ in range(counts[host])]
    assert [line.split()[4] for line in lines] == places, ended.output
    assert len({line.split()[-1] for line in lines}) == 1, ended.output


@pytest.mark.parametrize("victim", [0, 2])
def test_a_rank_that_is_killed(bench, gpus, victim):
    gpus(2)
    with VirtualHosts(2) as hosts:
        running = start(bench, hosts, words_of(bench, FOREVER))
        wait_for(running, lambda output: output.count("pid of ") == 4, 90)
        pids = [int(pid) for pid in re.findall(r"pid of \d: (\d+)", running.output())]
        os.kill(int(re.search(rf"pid of {victim}: (\d+)", running.output()).group(1)), signal.SIGKILL)
        begin = time.monotonic()
        wait_for(running, lambda output: output.count("error of ") == 3, 15)
        took = time.monotonic() - begin
        output = running.output()
        # Open MPI's launcher goes on without the rank.
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        running.process.terminate()
        running.finish()
    errors = re.findall(r"error of \d: (.*)", output)
    assert all(f"rank {victim} " in error and "killed by signal 9" in error for error in errors), output
    assert took < 10, output

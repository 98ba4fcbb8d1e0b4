"""NCCL that fails when it starts: training goes on through the host, or the job ends if NCCL is required."""

import pytest
from harness import run_job
from pretend_gpu import FOLDER, GROWTH, OWN_GPU

TRAIN = (
    """
import hashlib

sdp.init()
"""
    + OWN_GPU
    + """
weights = [tf.Variable(tf.fill([2000 * (i + 1)], 0.1 * (i + 1 + sdp.rank()))) for i in range(4)]
sdp.broadcast_variables(weights, 0)


@tf.function
def step(x):
    with tf.GradientTape() as tape:
        losses = [w * w * x for w in weights]
    tape = sdp.DistributedGradientTape(tape)
    for weight, gradient in zip(weights, tape.gradient(losses, weights)):
        weight.assign_sub(0.01 * gradient)


for number in range(4):
    step(tf.constant(1.0 + sdp.rank() + number))
report("weights", hashlib.sha256(b"".join(w.numpy().tobytes() for w in weights)).hexdigest())
report("nccl", sdp.stats()["collectives"]["allreduce"]["nccl_bytes"])
"""
)


@pytest.fixture
def run(gpus, monkeypatch):
    """Trains with NCCL that has a fault."""

    def train(num_ranks, fault, text="", **settings):
        gpus(num_ranks)
        monkeypatch.setenv("FAULTY_NCCL", fault)
        monkeypatch.setenv("FAULTY_NCCL_TEXT", text)
        settings["SMDDP_NCCL_LIBRARY"] = FOLDER / "libnccl_faulty.so"
        options = [word for name, value in settings.items() for word in ("-x", f"{name}={value}")]
        return run_job(num_ranks, GROWTH + TRAIN, options=options)

    return train


def warning_of(job):
    """Checks that training has gone on through the host, and returns the one warning."""
    assert job.exit_code == 0, str(job)
    assert len({found["weights"] for found in job.reports}) == 1
    assert {found["nccl"] for found in job.reports} == {0}
    (line,) = [line for line in job.output.splitlines() if "tf_smddp rank" in line and " warning] " in line]
    assert "NCCL does not work here, so tensors of GPUs are copied to the host's memory" in line
    return line


@pytest.mark.pretend_gpu
def test_a_start_that_fails(run):
    line = warning_of(run(2, "init_fails:1", "Error while creating shared memory segment /dev/shm/nccl-x"))
    assert ": rank 1: " in line and "--shm-size=1g" in line


@pytest.mark.pretend_gpu
@pytest.mark.long
@pytest.mark.parametrize("fault", ["kernel_hangs:7", "wrong_sums:3"])
def test_eight_ranks(run, fault):
    assert "NCCL_P2P_DISABLE=1" in warning_of(run(8, fault, SMDDP_NCCL_TIMEOUT=10))


@pytest.mark.pretend_gpu
def test_nccl_that_is_required(run):
    job = run(2, "init_fails:0", "Failed to bind NVLS Multicast memory", SMDDP_NCCL="required")
    assert job.exit_code == 1, str(job)
    assert "SMDDP_NCCL=required, and NCCL does not work here: rank 0: " in job.output
    assert "Remedy: set NCCL_NVLS_ENABLE=0" in job.output
    assert not job.leftovers, str(job)

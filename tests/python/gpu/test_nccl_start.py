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
tf.keras.utils.set_random_seed(sdp.rank())
weights = [tf.Variable(tf.random.normal([64, 64])) for _ in range(3)]
sdp.broadcast_variables(weights, 0)


@tf.function
def step(x):
    with tf.GradientTape() as tape:
        loss = tf.add_n([tf.reduce_sum(w * x * w) for w in weights])
    tape = sdp.DistributedGradientTape(tape)
    for weight, gradient in zip(weights, tape.gradient(loss, weights)):
        weight.assign_sub(0.01 * gradient)


for number in range(4):
    step(tf.fill([64, 64], 1.0 + sdp.rank() + number))
report("weights", hashlib.sha256(b"".join(w.numpy().tobytes() for w in weights)).hexdigest())
report("nccl", sdp.stats()["collectives"]["allreduce"]["nccl_bytes"])
"""
)


@pytest.fixture
def faulty(monkeypatch):
    """Makes NCCL fail in the jobs of a test."""

    def fail(fault, text="", **environment):
        monkeypatch.setenv("SMDDP_NCCL_LIBRARY", str(FOLDER / "libnccl_faulty.so"))
        monkeypatch.setenv("FAULTY_NCCL", fault)
        monkeypatch.setenv("FAULTY_NCCL_TEXT", text)
        for name, value in environment.items():
            monkeypatch.setenv(name, value)

    return fail


def check_goes_on(job, num_ranks):
    assert job.exit_code == 0, str(job)
    assert len({found["weights"] for found in job.reports}) == 1
    assert [found["nccl"] for found in job.reports] == [0] * num_ranks
    (line,) = [line for line in job.output.splitlines() if "tf_smddp rank" in line and " warning] " in line]
    assert "NCCL does not work here, so tensors of GPUs are copied to the host's memory" in line
    return line


@pytest.mark.pretend_gpu
def test_a_start_that_fails(gpus, faulty):
    gpus(2)
    faulty("init_fails:1", "Error while creating shared memory segment /dev/shm/nccl-x (size 9637888)")
    line = check_goes_on(run_job(2, GROWTH + TRAIN), 2)
    assert ": rank 1: " in line and "--shm-size=1g" in line


@pytest.mark.pretend_gpu
@pytest.mark.long
@pytest.mark.parametrize("fault", ["kernel_hangs:7", "wrong_sums:3"])
def test_eight_ranks(gpus, faulty, fault):
    gpus(8)
    faulty(fault, SMDDP_NCCL_TIMEOUT="5")
    assert "NCCL_P2P_DISABLE=1" in check_goes_on(run_job(8, GROWTH + TRAIN), 8)


@pytest.mark.pretend_gpu
def test_nccl_that_is_required(gpus, faulty):
    gpus(2)
    faulty("init_fails:0", "Failed to bind NVLink SHARP (NVLS) Multicast memory", SMDDP_NCCL="required")
    job = run_job(2, GROWTH + TRAIN)
    assert job.exit_code == 1, str(job)
    assert "SMDDP_NCCL=required, and NCCL does not work here: rank 0: " in job.output
    assert "Remedy: set NCCL_NVLS_ENABLE=0" in job.output
    assert not job.leftovers, str(job)

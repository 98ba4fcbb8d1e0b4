"""A rank that dies, or fails: every other rank soon gets an error that names it, and nothing is left."""

import os
import random
import signal
import time

import pytest
from harness import RunningJob, run_job

pytestmark = pytest.mark.one_tensorflow

ROUNDS = 6
# The victims are ranks 0, 1 and 2 in turn.
LONG_ROUNDS = (1, 2, 3, 4)

TRAINING = """
sdp.init()
report("pid", os.getpid())
compiled = bool(sys.argv[1:])
weights = [tf.Variable(tf.zeros([1000 * (i + 1)])) for i in range(8)]

@tf.function(jit_compile=compiled)
def step():
    with tf.GradientTape() as tape:
        loss = tf.add_n([tf.reduce_sum(weight * weight) for weight in weights])
    gradients = sdp.DistributedGradientTape(tape).gradient(loss, weights)
    for weight, gradient in zip(weights, gradients):
        weight.assign_sub(0.1 * gradient)

step()
sdp.barrier()
report("training", True)
try:
    while True:
        step()
except tf.errors.OpError as error:
    report("when", time.time())
    report("type", type(error).__name__)
    report("error", error.message)
    report("usable", float(tf.function(tf.reduce_sum, jit_compile=compiled)(tf.ones([3]))))
"""


@pytest.mark.parametrize(
    "round_number",
    [pytest.param(i, marks=pytest.mark.long) if i in LONG_ROUNDS else i for i in range(ROUNDS)],
)
def test_killed(round_number):
    """The last round is one of a training step that XLA compiles."""
    generator = random.Random(round_number)
    victim = round_number % 3
    with RunningJob(3, TRAINING, *["compiled"] * (round_number == ROUNDS - 1)) as running:
        running.wait_for("training")
        pid = running.reports()[victim]["pid"]
        time.sleep(generator.uniform(0.0, 0.5))
        killed = time.time()
        os.kill(pid, signal.SIGKILL)
        job = running.finish()
    assert job.exit_code == 128 + signal.SIGKILL, str(job)
    assert not job.leftovers, str(job)
    for rank, report in enumerate(job.reports):
        if rank == victim:
            assert "error" not in report, str(job)
            continue
        assert report["type"] in ("InternalError", "FailedPreconditionError"), str(job)
        for text in (f"rank {victim}", str(pid), "SIGKILL"):
            assert text in report["error"], f"rank {rank} should say {text!r}: {job}"
        assert report["when"] - killed < 2.0, str(job)
        assert report["usable"] == 3.0


FAILING = """
sdp.init()
sdp.allreduce(1.0, 0, 1)
if sdp.rank() == 1:
    {end}
try:
    sdp.allreduce(2.0, 0, 1)
    report("error", "none")
except tf.errors.OpError as error:
    report("type", type(error).__name__)
    report("error", error.message)
"""


@pytest.mark.parametrize(
    ("end", "exit_code"),
    [("raise ValueError('no such file')", 1), ("sys.exit(7)", 7), ("sdp.shutdown(); sys.exit(0)", 0)],
    ids=["exception", "exit", "shutdown"],
)
def test_a_rank_that_ends_early(end, exit_code):
    """The other rank must not wait for it; its error must say who is gone."""
    job = run_job(2, FAILING.format(end=end))
    assert job.exit_code == exit_code, str(job)
    assert job.reports[0]["type"] in ("InternalError", "FailedPreconditionError"), str(job)
    assert "rank 1" in job.reports[0]["error"], str(job)
    if exit_code == 1:
        assert "ValueError: no such file" in job.output
        assert "shut down" not in job.reports[0]["error"], "an exception must not look like an orderly end"


def test_an_op_that_fails_on_one_rank():
    """The step fails on rank 1 before it comes to its allreduce: rank 0 must not wait for it for ever."""
    job = run_job(
        2,
        """
sdp.init()

@tf.function
def step(x):
    tf.debugging.assert_positive(x, "not positive")
    with tf.control_dependencies([x]):
        return sdp.allreduce(x, 0, 1)

step(tf.constant(1.0))
try:
    step(tf.constant(1.0 - 2.0 * sdp.rank()))
    report("error", "none")
except tf.errors.OpError as error:
    report("error", error.message)
    if sdp.rank() == 1:
        raise
""",
    )
    assert job.exit_code == 1, str(job)
    assert "rank 1" in job.reports[0]["error"], str(job)
    assert "not positive" in job.reports[1]["error"], str(job)

"""A rank is alive but absent: the rank that waits for it writes a warning, and continues later."""

import os
import signal
import time

import pytest
from harness import RunningJob, run_job

pytestmark = pytest.mark.one_tensorflow

# Rank 2 stops itself between two steps: nothing of the last one is left for it to do. A rank that is only not
# scheduled comes before the warning.
STEPS = """
import signal
os.environ["SMDDP_STALL_WARNING"] = "2"
sdp.init()

@tf.function
def step(x):
    return sdp.allreduce(x, 0, 1, name="gradient")

for i in range(100):
    step(tf.ones([2000]))
    if i == 5:
        report("pid", os.getpid())
        if sdp.rank() == 2:
            os.kill(os.getpid(), signal.SIGSTOP)
report("done", True)
"""


class WatchedJob(RunningJob):
    def output(self):
        return (self._folder / "output").read_text(errors="replace")


def test_a_stopped_rank():
    with WatchedJob(3, STEPS) as running:
        pid = running.wait_for("pid")[2]
        # Ranks may also have waited in the first steps, in which the function is traced.
        before = len(running.output())
        try:
            deadline = time.monotonic() + 20.0
            while f"`kill -CONT {pid}`" not in running.output() and time.monotonic() < deadline:
                time.sleep(0.01)
        finally:
            os.kill(pid, signal.SIGCONT)
        job = running.finish()
    assert job.exit_code == 0, str(job)
    assert not job.leftovers, str(job)
    assert all(report["done"] for report in job.reports), str(job)
    warnings = [line for line in job.output[before:].splitlines() if "warning] rank" in line]
    assert len(warnings) >= 2, str(job)
    assert all("[tf_smddp rank 0 warning]" in line for line in warnings), str(job)
    for text in (
        "for rank 2 at allreduce",
        "gradient",
        f"Rank 2 (pid {pid}) is stopped; it last submitted allreduce",
        f"`kill -CONT {pid}`",
        "The job ends when it makes no progress for 1800 s (SMDDP_STALL_TIMEOUT).",
    ):
        assert text in warnings[0], str(job)
    assert "rank 0 continues after a wait of about" in warnings[-1], str(job)


def test_the_timeout_ends_the_job():
    job = run_job(
        2,
        """
os.environ.update(SMDDP_STALL_WARNING="0.5", SMDDP_STALL_TIMEOUT="1.5")
sdp.init()
try:
    if sdp.rank() == 0:
        sdp.broadcast(tf.ones([3]), root_rank=0, name="weights")
    else:
        sdp.allreduce(tf.ones([3]), 0, 1, name="gradient")
except tf.errors.OpError as error:
    report("type", type(error).__name__)
    report("error", error.message)
""",
    )
    for report in job.reports:
        assert report["type"] == "InternalError", str(job)
        for text in (
            "no progress for 1.5 s (SMDDP_STALL_TIMEOUT)",
            "broadcast",
            "weights",
            "allreduce",
            "gradient",
        ):
            assert text in report["error"], str(job)
        assert (
            "the ranks run different collectives, or the same ones in different orders" in report["error"]
        ), str(job)


@pytest.mark.long
def test_a_setting_that_is_no_number():
    job = run_job(1, "os.environ['SMDDP_STALL_WARNING'] = 'soon'; sdp.init()", launcher=False)
    assert job.exit_code == 1, str(job)
    assert "SMDDP_STALL_WARNING='soon' is not a number of seconds from 0 (never) to 8640000" in job.output

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
        "The job ends when it makes no progress for 600 s (SMDDP_STALL_TIMEOUT).",
    ):
        assert text in warnings[0], str(job)
    assert "rank 0 continues after a wait of about" in warnings[-1], str(job)


# In a v1 session tensors meet by name.
OTHER_NAMES = """
sdp.init()
name = "apples" if sdp.rank() == 0 else "pears"
with tf.Graph().as_default(), tf.compat.v1.Session() as session:
    own = sdp.allreduce(tf.compat.v1.placeholder_with_default([1.0, 2.0], [2]), 0, 1, name=name)
    try:
        session.run(own)
    except tf.errors.OpError as error:
        report("error", error.message)
"""

# Each rank is in both sets, and begins with the other one than its peer.
CROSSED_SETS = """
sdp.init()
sets = [sdp.add_process_set([0, 1]), sdp.add_process_set([0, 1])]
first, second = sets if sdp.rank() == 0 else reversed(sets)
try:
    sdp.allreduce(tf.ones([3]), 0, 1, name="first", process_set=first)
    sdp.allreduce(tf.ones([3]), 0, 1, name="second", process_set=second)
except tf.errors.OpError as error:
    report("error", error.message)
"""

# Each rank's only thread for compiled programs waits in another set than its peer's.
NO_THREAD_LEFT = """
import threading
tf.config.threading.set_inter_op_parallelism_threads(1)
sdp.init()
sets = [sdp.add_process_set([0, 1]) for _ in range(2)]

def run(process_set):
    compiled = tf.function(lambda x: sdp.allreduce(x, 0, 1, process_set=process_set), jit_compile=True)
    try:
        tf.function(lambda x: compiled(x) + 1.0)(tf.constant(1.0))
    except (tf.errors.OpError, RuntimeError) as error:
        report("error", str(error))

threads = [threading.Thread(target=run, args=(each,)) for each in sets]
for thread in threads if sdp.rank() == 0 else reversed(threads):
    thread.start()
    time.sleep(2.0)
for thread in threads:
    thread.join()
"""


@pytest.mark.parametrize(
    "script, names",
    [
        pytest.param(OTHER_NAMES, ("'apples'", "'pears'"), id="other names"),
        pytest.param(
            CROSSED_SETS, ("in process set 1", "in process set 2"), id="crossed sets", marks=pytest.mark.long
        ),
        pytest.param(NO_THREAD_LEFT, ("in process set 1", "in process set 2"), id="no thread left"),
    ],
)
def test_ranks_that_wait_for_each_other(script, names):
    job = run_job(2, 'os.environ["SMDDP_STALL_TIMEOUT"] = "12"\n' + script, seconds=60)
    for report in job.reports:
        for text in (
            "no progress for 6.0 s (half of SMDDP_STALL_TIMEOUT, since the ranks wait for each other)",
            "the ranks run different collectives, or the same ones in different orders",
            *names,
        ):
            assert text in report["error"], str(job)


def test_the_timeout_ends_the_job():
    job = run_job(
        2,
        """
os.environ.update(SMDDP_STALL_WARNING="0.5", SMDDP_STALL_TIMEOUT="3")
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
            "no progress for 1.5 s (half of SMDDP_STALL_TIMEOUT, since",
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

"""Ctrl-C, and other exceptions that end a rank: what it waits for ends, and the others get the reason."""

import pytest
from harness import run_job

pytestmark = pytest.mark.one_tensorflow

# In each part, rank 1 gets a SIGINT while it waits for rank 0. Rank 0 continues when rank 1 has handled it.
SCRIPT = """
import pathlib, signal, threading
sdp.init()
rank = sdp.rank()

def reported(rank, key, seconds):
    path = pathlib.Path(os.environ["TF_SMDDP_TEST_REPORTS"], str(rank))
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if path.exists() and json.dumps(key) in path.read_text():
            return True
        time.sleep(0.01)
    return False

def run(name, wait):
    # Traced and compiled, so that the signal comes while the collective waits.
    wait()
    sdp.barrier()
    if rank == 1:
        threading.Timer(0.7, os.kill, (os.getpid(), signal.SIGINT)).start()
    outcome = "none"
    try:
        if rank == 0:
            report(name + ": without rank 0", reported(1, name + ": interrupted", 5.0))
        wait()
    except KeyboardInterrupt:
        report(name + ": interrupted", True)
        outcome = "KeyboardInterrupt"
    except tf.errors.OpError as error:
        outcome = error.message
    report(name, {"outcome": outcome, "next": float(sdp.allreduce(rank + 1.0, 0, 1))})

with tf.Graph().as_default() as graph:
    total = sdp.allreduce([1.0], 0, 1, name='total')
session = tf.compat.v1.Session(graph=graph)

run("eager", lambda: sdp.allreduce([1.0], 0, 1, name='total'))
run("barrier", lambda: sdp.barrier(name='total'))
run("function", tf.function(lambda: sdp.allreduce([1.0], 0, 1, name='total')))
run("compiled", tf.function(lambda: sdp.allreduce([1.0], 0, 1, name='total'), jit_compile=True))
run("session", lambda: session.run(total))
sdp.barrier()
sdp.shutdown()
report("handler", signal.getsignal(signal.SIGINT) is signal.default_int_handler)
# Python's own handler is back in its place.
try:
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(5.0)
    report("after shutdown", "none")
except KeyboardInterrupt:
    report("after shutdown", "KeyboardInterrupt")
"""


@pytest.fixture(scope="module")
def job():
    """One job of two ranks, with a Ctrl-C in collective after collective."""
    return run_job(2, SCRIPT)


@pytest.mark.parametrize("wait", ["eager", "barrier", "function", "compiled", "session"])
def test_ctrl_c_in_a_collective(job, wait):
    assert job.exit_code == 0, job
    waiting, interrupted = (report[wait] for report in job.reports)
    assert interrupted["outcome"] == "KeyboardInterrupt", job
    assert job.reports[0][f"{wait}: without rank 0"], job
    for text in ("rank 1", "'total'", "interrupted (SIGINT)"):
        assert text in waiting["outcome"], job
    assert [waiting["next"], interrupted["next"]] == [1.5, 1.5], job


def test_ctrl_c_after_shutdown_is_pythons_again(job):
    for report in job.reports:
        assert report["handler"] is True, job
        assert report["after shutdown"] == "KeyboardInterrupt", job


def test_ctrl_c_that_the_script_handles_itself_is_left_alone():
    job = run_job(
        1,
        """
import signal
seen = []
signal.signal(signal.SIGINT, lambda *_: seen.append("mine"))
sdp.init()
os.kill(os.getpid(), signal.SIGINT)
time.sleep(0.1)
report("seen", seen)
sdp.shutdown()
sdp.init()
# Taken over later: shutdown() must not put another one in its place.
signal.signal(signal.SIGINT, lambda *_: seen.append("other"))
sdp.shutdown()
os.kill(os.getpid(), signal.SIGINT)
time.sleep(0.1)
report("later", seen)
""",
        launcher=False,
    )
    assert job.exit_code == 0, job
    assert job.reports[0]["seen"] == ["mine"], job
    assert job.reports[0]["later"] == ["mine", "other"], job


@pytest.mark.long
def test_ctrl_c_in_a_forked_child_is_none_in_the_parent():
    job = run_job(
        2,
        """
import signal
sdp.init()
if sdp.rank() == 0:
    child = os.fork()
    if child == 0:
        try:
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(5.0)
        except KeyboardInterrupt:
            os._exit(7)
        os._exit(0)
    report("child", os.waitpid(child, 0)[1])
    report("sum", float(sdp.allreduce(1.0, 0, 1)))
else:
    time.sleep(1.0)
    report("sum", float(sdp.allreduce(3.0, 0, 1)))
""",
    )
    assert job.exit_code == 0, job
    assert job.reports[0]["child"] == 7 << 8, job
    assert [report["sum"] for report in job.reports] == [2.0, 2.0], job


@pytest.mark.parametrize(
    "error",
    [
        # Longer than what the others get, which has the beginning and the end.
        "ValueError('writing ' * 1000 + 'failed: the disk is full')",
        pytest.param("KeyboardInterrupt()", marks=pytest.mark.long),
        pytest.param("SystemExit(3)", marks=pytest.mark.long),
    ],
)
def test_an_exception_that_ends_a_rank(error):
    """The others get its type and text; but sys.exit() is orderly, and only who waits gets an error."""
    job = run_job(
        2,
        f"""
sdp.init()
sdp.barrier()
if sdp.rank() == 1:
    time.sleep(0.5)
    raise {error}
try:
    sdp.allreduce([1.0], 0, 1, name="total")
except tf.errors.OpError as failure:
    report("error", failure.message)
""",
    )
    found = job.reports[0]["error"]
    assert "rank 1" in found, job
    if error.startswith("SystemExit"):
        assert "has ended (its script is at its end, or called sys.exit)" in found, job
        assert job.exit_code == 3, job
    else:
        assert "ended with an uncaught" in found, job
        assert error.split("(")[0] in found, job
        assert "the disk is full" in found or error.startswith("Key"), job

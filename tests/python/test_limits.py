"""Limits of the system: a job works and writes a warning, or init() fails and says what to change."""

import os
import re
import signal
import time

import pytest
from harness import RunningJob, run_job

pytestmark = pytest.mark.one_tensorflow

# The stacks of threads that have ended are used again, limit or not, until these have taken them all.
TAKE_STACKS = """
import threading
end = threading.Event()


def take_stacks():
    try:
        while True:
            threading.Thread(target=end.wait).start()
    except RuntimeError as error:
        return str(error)
"""

# Each attempt needs a meeting place of its own: a start that fails removes its.
TOO_LOW_THEN_ENOUGH = (
    TAKE_STACKS
    + """
import contextlib, resource

# TensorFlow allocates what it needs from the system before the limits below.
tf.reduce_sum(tf.ones([100, 100])).numpy()
place = os.environ["SMDDP_RENDEZVOUS"]
os.environ["SMDDP_TABLE_SLOTS"] = "1024"  # the tables are not the subject


def in_use():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[0]) * resource.getpagesize()


@contextlib.contextmanager
def limited(which, value):
    soft, hard = resource.getrlimit(which)
    resource.setrlimit(which, (value, hard))
    try:
        yield
    finally:
        resource.setrlimit(which, (soft, hard))


def attempt(name, which, value, prepare=lambda: None):
    os.environ["SMDDP_RENDEZVOUS"] = f"{place}-{name}"
    os.makedirs(os.environ["SMDDP_RENDEZVOUS"], mode=0o700, exist_ok=True)
    try:
        with limited(which, value):
            prepare()
            sdp.init()
    except RuntimeError as error:
        report(name, str(error))


MIB = 1 << 20
attempt("files", resource.RLIMIT_NOFILE, max(map(int, os.listdir("/proc/self/fd"))) + 6)
attempt("file size", resource.RLIMIT_FSIZE, MIB // 2)
attempt("address space", resource.RLIMIT_AS, in_use() + 14 * MIB, take_stacks)  # then less than a stack
end.set()
attempt("enough", resource.RLIMIT_FSIZE, 40 * MIB)
report("sum", float(sdp.allreduce(tf.ones([100000]), 0, 1, op=sdp.ReduceOp.SUM)[0]))
with open("/proc/self/maps") as maps:
    mapped = maps.read()
report("memfd", "memfd:smddp" in mapped)
report("shm", "/dev/shm" in mapped)
"""
)


def test_limits_that_are_too_low_and_one_that_is_enough():
    job = run_job(2, TOO_LOW_THEN_ENOUGH)
    assert job.exit_code == 0, str(job)
    for report in job.reports:
        for name, parts in {
            "files": ["init() of 2 ranks needs", "raise it to", "ulimit -n"],
            "file size": ["file size limit of 0 MiB", "ulimit -f unlimited"],
            "address space": ["ulimit -v"],
        }.items():
            for part in parts:
                assert part in report[name], str(job)
        assert "enough" not in report, str(job)
        assert report["sum"] == 2.0, str(job)
        assert report["memfd"] is True, str(job)
        assert report["shm"] is False, str(job)
    line = r"\[tf_smddp rank 0 warning\] the arena has 40 MiB instead of \d+ MiB because of the file size"
    assert len(re.findall(line, job.output)) == 1, str(job)
    assert job.output.count("[tf_smddp rank") == 1, str(job)


NO_THREAD_LEFT = (
    TAKE_STACKS
    + """
import resource

# TensorFlow allocates what it needs from the system before the limits below.
assert float(tf.reduce_sum(tf.ones([100, 100]))) == 10000.0
with open("/proc/self/statm") as file:
    in_use = int(file.read().split()[0]) * resource.getpagesize()
limits = resource.getrlimit(resource.RLIMIT_AS)
resource.setrlimit(resource.RLIMIT_AS, (in_use + (4 << 20), limits[1]))  # less than a stack
report("thread", take_stacks())
sdp.init()
end.set()
resource.setrlimit(resource.RLIMIT_AS, limits)
report("sum", float(sdp.allreduce(3.0, 0, 1)))
sdp.shutdown()
"""
)


@pytest.mark.long
def test_no_thread_to_be_had():
    """One rank needs none, but for Ctrl-C."""
    job = run_job(1, NO_THREAD_LEFT, launcher=False)
    assert job.exit_code == 0, str(job)
    assert "can't start new thread" in job.reports[0]["thread"], str(job)
    assert job.reports[0]["sum"] == 3.0, str(job)
    assert job.output.count("[tf_smddp rank 0 warning] Ctrl-C will not end a collective") == 1, str(job)
    assert job.output.count("[tf_smddp") == 1, str(job)


# Refuses a call as a container's profile may do: four instructions load the number of the call and refuse one
# of them.
WITHOUT_PIDFD = """
import ctypes, struct

PIDFD_OPEN, EPERM = 434, 1
program = b"".join(
    struct.pack("HBBI", *instruction)
    for instruction in [
        (0x20, 0, 0, 0),
        (0x15, 0, 1, PIDFD_OPEN),
        (0x06, 0, 0, 0x00050000 | EPERM),
        (0x06, 0, 0, 0x7FFF0000),
    ]
)
buffer = ctypes.create_string_buffer(program)
filter = ctypes.create_string_buffer(struct.pack("HxxxxxxQ", len(program) // 8, ctypes.addressof(buffer)))
libc = ctypes.CDLL(None, use_errno=True)
PR_SET_SECCOMP, SECCOMP_MODE_FILTER, PR_SET_NO_NEW_PRIVS = 22, 2, 38
assert libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
assert libc.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.byref(filter)) == 0, ctypes.get_errno()

sdp.init()
report("pid", os.getpid())
step = tf.function(lambda x: sdp.allreduce(x, 0, 1))
step(tf.ones([1000]))
report("training", True)
try:
    while True:
        step(tf.ones([1000]))
except tf.errors.OpError as error:
    report("when", time.time())
    report("error", error.message)
"""


def test_a_death_is_noticed_where_pidfds_are_refused():
    with RunningJob(2, WITHOUT_PIDFD) as running:
        running.wait_for("training")
        pid = running.reports()[1]["pid"]
        killed = time.time()
        os.kill(pid, signal.SIGKILL)
        job = running.finish()
    assert job.exit_code == 128 + signal.SIGKILL, str(job)
    assert not job.leftovers, str(job)
    assert job.output.count("pidfd_open is refused") == 1, str(job)
    for text in ("rank 1", str(pid), "SIGKILL"):
        assert text in job.reports[0]["error"], str(job)
    assert job.reports[0]["when"] - killed < 2.0, str(job)

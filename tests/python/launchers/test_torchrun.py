"""Ranks with the variables of torchrun. A script plays its agent, so PyTorch is not needed.

The variables of two runs are equal, as they are with torchrun's defaults.
"""

import sys

import pytest
from foreign_jobs import check_who

AGENT = """
import os, signal, subprocess, sys, time

def start(rank, restarts, *words):
    environ = dict(os.environ, RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE="2", LOCAL_WORLD_SIZE="2",
        GROUP_RANK="0", MASTER_ADDR="127.0.0.1", MASTER_PORT="29500", TORCHELASTIC_RUN_ID="none",
        TORCHELASTIC_RESTART_COUNT=str(restarts))
    return subprocess.Popen(words, env=environ)

who, name, attempts = sys.argv[1], sys.argv[2], int(sys.argv[3])
for attempt in range(attempts - 1):
    # The first attempts fail, because rank 0 is killed while it waits for rank 1.
    failing = start(0, 0, sys.executable, who, name)
    deadline = time.monotonic() + 60
    while not any("bootstrap" in files for _, _, files in os.walk(os.environ["SMDDP_TMPDIR"])):
        assert failing.poll() is None and time.monotonic() < deadline
        time.sleep(0.05)
    failing.send_signal(signal.SIGKILL)
    failing.wait()
workers = [start(0, 0, sys.executable, who, name),
    start(1, 0, "bash", "-c", f"{sys.executable} {who} {name}; exit $?")]
sys.exit(max(worker.wait() for worker in workers))
"""


def start(bench, name, attempts=1):
    agent = bench.folder / "agent.py"
    agent.write_text(AGENT)
    return bench.start(sys.executable, agent, bench.who, name, attempts)


@pytest.mark.long
def test_two_runs_at_once_with_equal_variables(bench):
    jobs = {name: start(bench, name) for name in ("one", "other")}
    for name, job in jobs.items():
        check_who(job.finish(), name)


def test_the_place_of_a_killed_attempt_is_taken_over(bench):
    check_who(start(bench, "again", attempts=2).finish(), "again")

"""Ranks and links of another host that fail. The hosts are network namespaces of this machine."""

import os
import pathlib
import re
import signal
import sys
import time

import pytest
from test_hosts import launch, wait_for
from virtual_hosts import VirtualHosts

# It keeps Open MPI's launcher from ending the other ranks when one dies, so that they say what they saw.
KEEP_THE_OTHERS = "--enable-recovery"
# The seconds that a test allows beside the limits that the documents give, since this machine may be busy.
SLACK = 5

JOB = """
import os, sys, time
import tensorflow as tf
import tf_smddp as sdp
time.sleep(LATE if os.uname().nodename == "h1" else 0)
try:
    sdp.init()
    x = tf.ones(COUNT)
    for step in range(100_000):
        sdp.allreduce(x, 0, 1)
        if step == 10:
            os.write(1, f"pid of {sdp.rank()}: {os.getpid()}\\n".encode())
            time.sleep(IDLE)
        if step == STEPS:
            break
except (tf.errors.InternalError, RuntimeError) as error:
    os.write(1, f"error on {os.uname().nodename}: {error}\\n".encode())
    os._exit(3)
os.write(1, f"well: {sdp.rank()}\\n".encode())
"""


def job(bench, count=1, idle=0, late=0, steps=100_000):
    """Writes the job of the test: allreduces of `count` elements, with `idle` seconds after the tenth."""
    text = JOB
    for name, value in {"COUNT": count, "IDLE": idle, "LATE": late, "STEPS": steps}.items():
        text = text.replace(name, str(value))
    path = bench.folder / "job.py"
    path.write_text(text)
    return [sys.executable, path]


def start(bench, hosts, words, **changes):
    """Starts the job with two ranks on each host, and without the launcher's way to end all of them."""
    command = launch("openmpi4", hosts, (2, 2), words)
    program = next(index for index, word in enumerate(command) if "exec " in word)
    # `hosts.on` has made one word for the shell of all that follows.
    first, rest = command[program].split(" ", 2)[1:]
    command[program] = f"exec {first} {KEEP_THE_OTHERS} {rest}"
    return bench.start(*command, **changes)


def pid_of(running, rank):
    """Waits until a rank has said its process number."""
    wait_for(running, lambda output: f"pid of {rank}: " in output, 60)
    return int(re.search(rf"pid of {rank}: (\d+)", running.output()).group(1))


@pytest.mark.long
@pytest.mark.parametrize(
    "count, idle",
    [
        pytest.param(1, 0, id="small"),
        pytest.param(3_000_000, 0, id="large"),
        pytest.param(1, 4, id="idle"),
    ],
)
def test_a_rank_of_another_host_is_killed(bench, count, idle):
    """Not with MPICH, which may crash then: see the next test."""
    with VirtualHosts(2) as hosts:
        running = start(bench, hosts, job(bench, count, idle))
        pids = [pid_of(running, rank) for rank in range(4)]
        os.kill(pids[3], signal.SIGKILL)
        wait_for(running, lambda output: len(re.findall("error on h", output)) == 3, idle + 5 + SLACK)
        output = running.output()
        wait_for(running, lambda _: not any(pathlib.Path(f"/proc/{pid}").exists() for pid in pids), SLACK)
        running.process.terminate()
        running.finish()
    errors = re.findall(rf"error on (h.): .*rank 3 \(pid {pids[3]} on h1\) was killed by signal 9", output)
    assert sorted(errors) == ["h0", "h0", "h1"], output


@pytest.mark.long
@pytest.mark.parametrize(
    "killed, count, idle",
    [
        pytest.param(3, 1, 0, id="small"),
        pytest.param(3, 3_000_000, 0, id="large"),
        pytest.param(3, 1, 4, id="idle"),
        pytest.param(0, 1, 4, id="first-idle"),
        pytest.param(1, 1, 0, id="beside-the-first-small"),
    ],
)
def test_mpich_ends_the_job_when_a_rank_is_killed(bench, killed, count, idle):
    """That the job ends, and with an error, is all that holds in each case; MPICH may crash."""
    with VirtualHosts(2) as hosts:
        running = bench.start(*launch("mpich", hosts, (2, 2), job(bench, count, idle)))
        pids = [pid_of(running, rank) for rank in range(4)]
        os.kill(pids[killed], signal.SIGKILL)
        ended = running.finish(idle + 5 + SLACK)
        # Where MPICH's launcher crashed, it has not ended the ranks: they find out themselves.
        deadline = time.monotonic() + idle + 5 + SLACK
        while any(pathlib.Path(f"/proc/{pid}").exists() for pid in pids):
            assert time.monotonic() < deadline, ended.output
            time.sleep(0.05)
    assert ended.code != 0, ended.output


@pytest.mark.long
@pytest.mark.parametrize("count", [1, 3_000_000])
def test_the_first_rank_of_another_host_is_stopped(bench, count):
    with VirtualHosts(2) as hosts:
        words = launch("openmpi4", hosts, (1, 1), job(bench, count))
        running = bench.start(*words, SMDDP_HOST_TIMEOUT="3")
        pids = [pid_of(running, rank) for rank in range(2)]
        os.kill(pids[1], signal.SIGSTOP)
        wait_for(running, lambda output: "error on h0" in output, 3 + 1 + SLACK)
        os.kill(pids[1], signal.SIGKILL)
        ended = running.finish()
    assert ended.code != 0, ended.output
    assert "the connection to rank 1 on another host was lost (h1 has been silent for 3 s" in ended.output


@pytest.mark.long
@pytest.mark.parametrize("count", [1, 3_000_000])
def test_another_rank_of_another_host_is_stopped(bench, count):
    """One for which no host falls silent: the ranks of its host find it."""
    with VirtualHosts(2) as hosts:
        words = launch("openmpi4", hosts, (2, 2), job(bench, count))
        running = bench.start(*words, SMDDP_STALL_WARNING="2", SMDDP_STALL_TIMEOUT="6")
        pids = [pid_of(running, rank) for rank in range(4)]
        os.kill(pids[3], signal.SIGSTOP)
        wait_for(running, lambda output: len(re.findall("error on h", output)) == 3, 6 + 5 + SLACK)
        os.kill(pids[3], signal.SIGKILL)
        ended = running.finish()
    assert ended.code != 0, ended.output
    errors = [line for line in ended.output.splitlines() if line.startswith("error on h")]
    assert all("rank 3" in line and "stopped" in line for line in errors), ended.output


COMPUTES = """
import time
import tf_smddp as sdp

def compute(seconds):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        pass

sdp.init()
if sdp.rank() == 0:
    compute(12)
sdp.barrier()
if sdp.rank() == 0:
    compute(12)  # while the others wait in shutdown()
"""


@pytest.mark.long
def test_a_rank_that_computes_alone_is_waited_for(bench):
    path = bench.folder / "job.py"
    path.write_text(COMPUTES)
    with VirtualHosts(2) as hosts:
        words = launch("openmpi4", hosts, (1, 2), [sys.executable, path])
        ended = bench.start(*words, SMDDP_STALL_WARNING="2", SMDDP_STALL_TIMEOUT="4").finish()
    assert ended.code == 0, ended.output
    assert "Likely cause: rank 0 is busy with" in ended.output


@pytest.mark.long
@pytest.mark.parametrize("count", [1, 3_000_000])
def test_a_call_of_mpi_does_not_return(bench, count):
    """As MPICH's calls over libfabric when the only rank of the other host has died."""
    transport = {"MPIR_CVAR_CH4_NETMOD": "ofi", "FI_PROVIDER": "tcp", "FI_TCP_IFACE": "eth0"}
    with VirtualHosts(2) as hosts:
        words = launch("mpich", hosts, (1, 1), job(bench, count))
        words[-1] = words[-1].replace(" -hosts ", " -disable-auto-cleanup -hosts ")
        running = bench.start(*words, SMDDP_HOST_TIMEOUT="8", **transport)
        pids = [pid_of(running, rank) for rank in range(2)]
        os.kill(pids[1], signal.SIGKILL)
        ended = running.finish(8 + 2 + SLACK)
        assert not any(pathlib.Path(f"/proc/{pid}").exists() for pid in pids)
    assert ended.code != 0, ended.output
    lost = "a call of MPI on rank 0 has not returned for 8 s, SMDDP_HOST_TIMEOUT: h1 or a rank there has died"
    assert lost in ended.output, ended.output
    # The script has the error, unless its own thread is the one that MPI has: then the process is ended.
    ends = ("error on h0: ", "has not returned, though the job has ended")
    assert any(text in ended.output for text in ends), ended.output


@pytest.mark.long
def test_a_link_goes_down_while_all_are_idle(bench):
    with VirtualHosts(2) as hosts:
        words = launch("openmpi4", hosts, (1, 1), job(bench, idle=12))
        running = bench.start(*words, SMDDP_HOST_TIMEOUT="3")
        pid_of(running, 0), pid_of(running, 1)
        hosts.cut("h1")
        # The log says so at once, and the next collective fails.
        wait_for(running, lambda output: "[tf_smddp rank 0 error] the connection to" in output, 3 + 1 + SLACK)
        wait_for(running, lambda output: "error on h0" in output, 12 + SLACK)
        hosts.mend("h1")
        ended = running.finish()
    assert ended.code != 0, ended.output


@pytest.mark.long
def test_a_host_that_comes_late_is_waited_for(bench):
    with VirtualHosts(2) as hosts:
        began = time.monotonic()
        ended = bench.run(*launch("openmpi4", hosts, (1, 1), job(bench, late=10, steps=20)))
    assert ended.code == 0, ended.output
    assert ended.lines("well: ") == ["well: 0", "well: 1"], ended.output
    assert time.monotonic() - began > 10


def test_a_host_that_comes_too_late_is_an_error(bench):
    with VirtualHosts(2) as hosts:
        words = launch("openmpi4", hosts, (2, 1), job(bench, late=60, steps=20))
        # Long enough for each rank to say that it waits before the first one ends.
        running = bench.start(*words, SMDDP_BOOTSTRAP_TIMEOUT="8")
        wait_for(running, lambda output: "error on h0" in output, 60)
        ended = running.finish(30)
    assert ended.code != 0, ended.output
    assert re.search(r"error on h0: .*SMDDP_BOOTSTRAP_TIMEOUT\) for rank [01] on host h0", ended.output), (
        ended.output
    )
    waiting = re.findall(r"init\(\) on (.*) waits in MPI_Init_thread", ended.output)
    assert sorted(waiting) == ["rank 0 on host h0", "rank 1 on host h0"], ended.output

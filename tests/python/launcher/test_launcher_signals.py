"""Signals to the launcher, and their effect on the ranks."""

import os
import re
import signal
import sys
import time

import pytest
from launcher_harness import after, alive, cpu_ticks, proc, state, unread, wait_until

# It creates a file when it is ready, and reports the signals that it gets.
RANK = """
import os, pathlib, signal, sys, time
rank = os.environ["SMDDP_RANK"]
def show(number, frame):
    print("got", signal.Signals(number).name)
    if number not in (signal.SIGUSR1, signal.SIGUSR2): sys.exit()
for name in os.environ.get("CATCH", "").split(): signal.signal(getattr(signal, name), show)
tmp = pathlib.Path(f"tmp-{rank}"); tmp.write_text(f"{os.getpid()}\\n"); tmp.rename(f"pid-{rank}")
for _ in range(3000): time.sleep(0.01)
"""
FOREVER = "echo > ready-$SMDDP_RANK; while :; do sleep 0.05; done"


@pytest.fixture
def start(launcher):
    """Starts two ranks and waits until both run; returns the launcher and the ranks' pids."""

    def begin(*options, catch="", **popen):
        launcher.script("rank.py", RANK)
        running = launcher.start("-np", 2, *options, "rank.py", env={"CATCH": catch}, **popen)
        return running, [int(pid) for pid in launcher.wait_for_files("pid-0", "pid-1")]

    return begin


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT"])
def test_stopping_signals_reach_the_ranks_and_are_no_failure(start, name):
    number = getattr(signal, name)
    running, _ = start()
    running.signal(number)
    result = running.finish()
    assert result.code == 128 + number
    assert f"told to stop by {name}" in result.messages and "failed" not in result.messages


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
def test_ranks_that_handle_the_signal_end_in_their_own_way(start, name):
    running, _ = start(catch=name)
    running.signal(getattr(signal, name))
    result = running.finish()
    assert result.code == 0 and sorted(result.lines) == [f"[{r}] got {name}" for r in range(2)]


def test_after_a_stop_a_rank_may_take_longer_than_the_grace_period(launcher):
    script = (
        "[ $SMDDP_RANK = 1 ] || trap 'trap \"echo again\" TERM; sleep 1; echo saved; exit' TERM; " + FOREVER
    )
    running = launcher.start("-np", 2, "--grace", 0, "bash", "-c", script)
    launcher.wait_for_files("ready-0", "ready-1")
    running.signal(signal.SIGTERM)
    result = running.finish()
    assert result.lines == ["[0] saved"] and result.code == 143


def test_the_second_ctrl_c_kills_ranks_that_ignore_the_first(launcher):
    running = launcher.start("-np", 2, "bash", "-c", "trap 'echo no' INT; " + FOREVER)
    launcher.wait_for_files("ready-0", "ready-1")
    running.signal(signal.SIGINT)
    time.sleep(0.05)
    running.signal(signal.SIGINT)  # the same keystroke, passed on by a wrapper
    time.sleep(0.5)
    assert running.process.poll() is None
    running.signal(signal.SIGINT)
    begin = time.monotonic()
    result = running.finish()
    assert result.code == 130 and time.monotonic() - begin < 3
    assert result.messages.count("was ended by smddprun with SIGKILL") == 2
    assert result.stdout.count(b"no\n") == 2


@pytest.mark.parametrize("name", ["SIGUSR1", "SIGUSR2"])
def test_user_signals_are_passed_on_and_mean_nothing_to_the_launcher(start, name):
    running, _ = start(catch=name)
    running.signal(getattr(signal, name))
    got = b""
    while got.count(b"\n") < 2:
        got += os.read(running.process.stdout.fileno(), 100)
    assert sorted(got.decode().splitlines()) == [f"[{r}] got {name}" for r in range(2)]
    assert running.process.poll() is None
    running.signal(signal.SIGTERM)
    assert running.finish().code == 143


def test_ctrl_z_stops_all_and_fg_continues_all(start):
    # A shell starts it in a new process group, which the shell can continue.
    running, ranks = start(preexec_fn=os.setpgrp)
    everyone = [running.pid, *ranks]
    running.signal(signal.SIGTSTP)
    wait_until(lambda: {state(pid) for pid in everyone} == {"T"}, "all stopped")
    running.signal(signal.SIGCONT)
    wait_until(lambda: "T" not in {state(pid) for pid in everyone}, "all continued")
    running.signal(signal.SIGTERM)
    assert running.finish().code == 143


def test_ctrl_z_where_nobody_could_continue_it_does_not_stop_the_job(start):
    """The launcher leads a session, as under `ssh -t host smddprun …` or in a container."""
    running, ranks = start(catch="SIGUSR1", start_new_session=True)
    running.signal(signal.SIGTSTP)
    running.signal(signal.SIGUSR1)
    both = len("[0] got SIGUSR1\n[1] got SIGUSR1\n")
    wait_until(lambda: unread(running.process.stdout.fileno()) == both, "both ranks get it")
    assert "T" not in {state(pid) for pid in (running.pid, *ranks)}
    running.signal(signal.SIGTERM)
    assert running.finish().code == 143


def test_ranks_are_leaders_of_their_own_sessions(start):
    running, ranks = start()
    assert [os.getsid(pid) for pid in ranks] == ranks
    assert [os.getpgid(pid) for pid in ranks] == ranks
    running.signal(signal.SIGTERM)
    running.finish()


def test_a_signal_reaches_what_a_shell_has_started(launcher):
    launcher.script("rank.py", RANK)
    running = launcher.start(
        "-np", 2, "bash", "-c", f"{sys.executable} rank.py; echo after", env={"CATCH": "SIGTERM"}
    )
    launcher.wait_for_files("pid-0", "pid-1")
    running.signal(signal.SIGTERM)
    result = running.finish()
    assert result.lines.count("[0] got SIGTERM") == 1 and result.lines.count("[1] got SIGTERM") == 1


def test_nohup_is_respected(launcher):
    launcher.script("rank.py", RANK)
    ignoring = after("signal.signal(signal.SIGHUP, signal.SIG_IGN)")
    running = launcher.start("-np", 2, "rank.py", program=ignoring)
    ranks = [int(pid) for pid in launcher.wait_for_files("pid-0", "pid-1")]
    running.signal(signal.SIGHUP)
    for pid in ranks:
        os.kill(pid, signal.SIGHUP)
    time.sleep(0.3)
    assert running.process.poll() is None and all(map(alive, ranks))
    running.signal(signal.SIGTERM)
    assert running.finish().code == 143


def test_a_signal_that_was_blocked_when_the_launcher_started_still_works(launcher):
    launcher.script("rank.py", RANK)
    blocking = after(
        "signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 32))",
        "signal.signal(signal.SIGCHLD, signal.SIG_IGN)",
    )
    running = launcher.start("-np", 2, "rank.py", program=blocking)
    launcher.wait_for_files("pid-0", "pid-1")
    running.signal(signal.SIGTERM)
    assert running.finish().code == 143


def test_idle_ranks_cost_no_cpu(start):
    running, _ = start()

    def switches():
        return sum(map(int, re.findall(rb"ctxt_switches:\s+(\d+)", proc(running.pid, "status"))))

    time.sleep(0.3)
    before = cpu_ticks(running.pid), switches()
    time.sleep(1.0)
    assert cpu_ticks(running.pid) - before[0] <= 1 and switches() - before[1] <= 3
    running.signal(signal.SIGTERM)
    running.finish()

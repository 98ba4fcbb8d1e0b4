"""No process, directory or file survives the launcher. The `launcher` fixture checks this after each test."""

import os
import re
import shutil
import signal
import subprocess
import sys
import time

import pytest
from launcher_harness import (
    LIMIT_SECONDS,
    SMDDPRUN,
    WITHOUT_PIDFD,
    after,
    alive,
    proc,
    processes_with,
    stat,
    wait_until,
)
from marked_processes import kill

# The rank leaves one process in its group, one in a new session, and one in a new session that ignores
# SIGTERM.
FAMILY = """
sleep 100 & echo $! > child-$SMDDP_RANK
setsid sleep 100 & echo $! > far-$SMDDP_RANK
setsid bash -c 'trap "" TERM; echo $$ > tough-'$SMDDP_RANK'; while :; do sleep 0.1; done' &
echo $$ > rank-$SMDDP_RANK
echo $SMDDP_JOB_ID > job
"""
NAMES = [f"{name}-{rank}" for rank in range(2) for name in ("child", "far", "tough", "rank")]


def family(launcher, ending, *options, **popen):
    running = launcher.start("-np", 2, *options, "bash", "-c", FAMILY + ending, **popen)
    pids = [int(pid) for pid in launcher.wait_for_files(*NAMES)]
    (job,) = launcher.wait_for_files("job")
    return running, pids, job


@pytest.mark.parametrize("program", [SMDDPRUN, WITHOUT_PIDFD], ids=["pidfd", "sigchld"])
def test_sigkill_of_the_launcher(launcher, program):
    running, pids, job = family(launcher, "sleep 100", program=program)
    assert all(alive(pid) for pid in pids) and set(pids) <= set(processes_with("SMDDP_JOB_ID", job))
    running.signal(signal.SIGKILL)
    begin = time.monotonic()
    ranks = [pids[NAMES.index(f"rank-{rank}")] for rank in range(2)]
    wait_until(lambda: not any(map(alive, ranks)), "the ranks are killed")
    assert time.monotonic() - begin < 0.5
    wait_until(lambda: not processes_with("SMDDP_JOB_ID", job), "all others are ended", seconds=6)
    wait_until(lambda: not os.listdir(launcher.rendezvous_parent), "the directory is removed")
    wait_until(lambda: not launcher.leftovers(), "the guard ends")
    running.finish()


@pytest.mark.parametrize("delay", [0.0, 0.02, 0.05, 0.08, 0.1, 0.12, 0.15])
def test_sigkill_of_the_launcher_while_it_starts(launcher, delay):
    running = launcher.start("-np", 4, "bash", "-c", "setsid sleep 100 & sleep 100")
    time.sleep(delay)
    running.signal(signal.SIGKILL)
    running.process.wait(LIMIT_SECONDS)


def test_sigkill_of_the_launchers_group_while_its_guard_starts(launcher):
    """The launcher starts ranks only when the guard has left the launcher's process group."""
    slow = after("import os, time", "setsid = os.setsid", "os.setsid = lambda: (time.sleep(0.5), setsid())")
    running = launcher.start(
        "-np", 2, "bash", "-c", "setsid sleep 100 & sleep 100", program=slow, start_new_session=True
    )
    wait_until(lambda: os.listdir(launcher.rendezvous_parent), "the directory is made")
    os.killpg(running.pid, signal.SIGKILL)
    running.process.wait(LIMIT_SECONDS)


def test_leftovers_at_the_end_are_ended_and_named(launcher):
    script = "sleep 100 & echo $! > near-$SMDDP_RANK; setsid sleep 200 & echo $! > far-$SMDDP_RANK"
    result = launcher.run("-np", 2, "bash", "-c", script)
    assert result.code == 0
    assert "ended 4 processes that the ranks left behind" in result.messages
    for name, seconds in (("near-0", 100), ("near-1", 100), ("far-0", 200), ("far-1", 200)):
        (pid,) = launcher.wait_for_files(name)
        assert f"{pid} (sleep {seconds})" in result.messages and not alive(int(pid))


def test_leftovers_of_a_failed_rank(launcher):
    slept = " && ".join(
        f"[ -s far-{rank} ] && grep -q sleep /proc/$(cat far-{rank})/comm" for rank in range(2)
    )
    script = (
        "setsid sleep 100 & echo $! > far-$SMDDP_RANK; [ $SMDDP_RANK = 0 ] && exec sleep 100; "
        f"until {slept}; do sleep 0.01; done; kill -9 $$"
    )
    result = launcher.run("-np", 2, "--grace", "0.1", "bash", "-c", script)
    assert result.code == 137 and "ended 2 processes" in result.messages


def test_a_killed_shell_does_not_leave_its_program(launcher):
    script = "[ $SMDDP_RANK = 0 ] && exec sleep 100; sleep 100 & echo $! > program; kill -9 $$"
    result = launcher.run("-np", 2, "--grace", "0.1", "bash", "-c", script)
    assert result.code == 137
    assert not alive(int((launcher.work / "program").read_text()))


def test_a_process_that_cleared_its_environment_is_found_by_its_session(launcher):
    running = launcher.start("-np", 1, "bash", "-c", "env -i sleep 100 & echo $! > bare; wait")
    (bare,) = launcher.wait_for_files("bare")
    wait_until(lambda: b"SMDDP" not in proc(int(bare), "environ"), "env -i has run")
    running.signal(signal.SIGKILL)
    try:
        wait_until(lambda: not alive(int(bare)), "it ends")
    finally:
        if alive(int(bare)):  # without its mark the fixture would not find it
            kill(int(bare))
    running.finish()


def test_helpers_that_end_by_themselves_are_left_alone(launcher):
    script = "exec > >(sleep 0.3; cat > copy); echo all of it"
    result = launcher.run("-np", 1, "bash", "-c", script)
    assert result.code == 0 and result.stderr == b""
    assert (launcher.work / "copy").read_text() == "all of it\n"


def test_output_that_a_leftover_writes_when_it_is_ended_is_not_lost(launcher):
    polite = "(trap 'echo farewell; exit' TERM; echo > ready; while :; do sleep 0.05; done) &"
    result = launcher.run("-np", 1, "bash", "-c", polite + "while ! [ -e ready ]; do sleep 0.01; done")
    assert result.code == 0 and result.stdout == b"farewell\n"


def test_the_guard_survives_ctrl_c_and_polite_signals(launcher):
    running = launcher.start(
        "-np", 1, "bash", "-c", "setsid sleep 100 & echo $! > far; sleep 100", start_new_session=True
    )
    (far,) = launcher.wait_for_files("far")
    guard = guard_of(launcher, running)
    assert os.getsid(guard) == guard
    assert proc(guard, "comm") == b"smddprun-guard\n"
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
        os.kill(guard, number)
    time.sleep(0.1)
    assert alive(guard)
    running.signal(signal.SIGKILL)
    wait_until(lambda: not alive(int(far)), "the guard has ended it")
    wait_until(lambda: not alive(guard), "the guard ends")
    running.finish()


def test_a_killed_guard_is_no_trouble_for_the_job(launcher):
    running = launcher.start(
        "-np", 2, "bash", "-c", "echo > ready-$SMDDP_RANK; while ! [ -e go ]; do sleep 0.01; done"
    )
    launcher.wait_for_files("ready-0", "ready-1")
    guard = guard_of(launcher, running)
    os.kill(guard, signal.SIGKILL)
    launcher.script("go", "")
    result = running.finish()
    assert result.code == 0 and result.stderr == b""


def test_without_a_guard_the_kernel_still_ends_the_ranks(launcher):
    running = launcher.start("-np", 2, "bash", "-c", "echo $$ > rank-$SMDDP_RANK; exec sleep 100")
    ranks = [int(pid) for pid in launcher.wait_for_files("rank-0", "rank-1")]
    os.kill(guard_of(launcher, running), signal.SIGKILL)
    running.signal(signal.SIGKILL)
    wait_until(lambda: not any(map(alive, ranks)), "the ranks are killed", seconds=1)
    running.finish()
    shutil.rmtree(next(launcher.rendezvous_parent.iterdir()))  # with both gone, nobody could


def test_nobody_holds_the_output_after_the_launcher_was_killed(launcher):
    """In `smddprun ... | tee log`, tee must see the end of the output."""
    running = launcher.start("-np", 2, "bash", "-c", "echo $$; exec sleep 100")
    os.read(running.process.stdout.fileno(), 10)
    running.signal(signal.SIGKILL)
    begin = time.monotonic()
    running.process.communicate(timeout=LIMIT_SECONDS)
    assert time.monotonic() - begin < 1


def test_the_guard_holds_no_descriptor_but_its_own(launcher):
    read_end, write_end = os.pipe()
    script = "echo > ready; exec sleep 100"
    running = launcher.start("-np", 1, "bash", "-c", script, pass_fds=[write_end])
    os.close(write_end)
    os.close(read_end)
    launcher.wait_for_files("ready")
    guard = guard_of(launcher, running)
    held = wait_until(
        lambda: (links := descriptors(guard)) and links.count("/dev/null") >= 3 and links,
        "the guard has let go of the launcher's descriptors",
    )
    assert [link[:5] for link in held if link != "/dev/null"] == ["pipe:"]
    running.signal(signal.SIGTERM)
    running.finish()


def test_a_job_inside_a_job_ends_with_the_outer_one(launcher):
    inner = [
        sys.executable,
        "-m",
        "smddprun",
        "-np",
        "2",
        "bash",
        "-c",
        "setsid sleep 100 & echo $! > far-$SMDDP_RANK; sleep 100",
    ]
    running = launcher.start("-np", 1, *inner)
    far = [int(pid) for pid in launcher.wait_for_files("far-0", "far-1")]
    running.signal(signal.SIGKILL)
    wait_until(lambda: not any(map(alive, far)), "all end", seconds=8)
    running.finish()


@pytest.mark.parametrize("outer_ends", [True, False])
def test_what_a_job_inside_a_job_has_left_is_removed(launcher, outer_ends):
    """The inner job's processes ignore SIGTERM and get SIGKILL. Its guard must not, since it cleans up."""
    tough = "trap '' TERM; echo > tough-$SMDDP_RANK; while :; do sleep 0.05; done"
    inner = [sys.executable, "-m", "smddprun", "-np", "2", "bash", "-c", tough]
    ending = "while ! [ -e tough-1 ]; do sleep 0.01; done" if outer_ends else "sleep 100"
    outer = ["bash", "-c", '"$@" & ' + ending, "bash", *inner]
    running = launcher.start("-np", 1, *outer)
    launcher.wait_for_files("tough-0", "tough-1")
    assert len(os.listdir(launcher.rendezvous_parent)) == 2
    if not outer_ends:
        running.signal(signal.SIGKILL)
    running.process.wait(LIMIT_SECONDS)
    wait_until(lambda: not os.listdir(launcher.rendezvous_parent), "both directories are removed")


def test_two_jobs_at_once_do_not_touch_each_other(launcher):
    long = launcher.start(
        "-np", 2, "bash", "-c", "echo > ready-$SMDDP_RANK; while ! [ -e go ]; do sleep 0.01; done; echo fine"
    )
    launcher.wait_for_files("ready-0", "ready-1")
    assert launcher.run("-np", 2, "--grace", 0, "bash", "-c", "setsid sleep 100 & exit 1").code == 1
    launcher.script("go", "")
    result = long.finish()
    assert result.code == 0 and sorted(result.lines) == ["[0] fine", "[1] fine"]


@pytest.mark.parametrize("state", ["there", "gone", "used", "nested"])
def test_the_rendezvous_directory_is_removed_whatever_the_ranks_did(launcher, state):
    script = {
        "there": "true",
        "gone": 'rm -rf "$SMDDP_RENDEZVOUS"',
        "used": 'touch "$SMDDP_RENDEZVOUS/socket"',
        "nested": 'mkdir -p "$SMDDP_RENDEZVOUS/a/b"',
    }[state]
    assert launcher.run("-np", 2, "bash", "-c", script).code == 0
    assert os.listdir(launcher.rendezvous_parent) == []


def test_a_rendezvous_directory_that_cannot_be_removed_is_named(launcher):
    program = after("import shutil", "shutil.rmtree = lambda *arguments, **options: None")
    result = launcher.run("-np", 2, "echo", "a", program=program)
    (left,) = launcher.rendezvous_parent.iterdir()
    shutil.rmtree(left)
    assert result.code == 0 and sorted(result.lines) == ["[0] a", "[1] a"]
    assert f"can't remove the directory {left}" in result.messages


def test_all_this_in_a_pipeline(launcher):
    command = " ".join(
        [sys.executable, "-m", "smddprun", "-np", "2", "bash", "-c", "'setsid sleep 100 & echo $SMDDP_RANK'"]
    )
    result = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {command} | sort"],
        cwd=launcher.work,
        env=launcher.environ(),
        capture_output=True,
        timeout=LIMIT_SECONDS,
    )
    assert result.returncode == 0 and result.stdout == b"[0] 0\n[1] 1\n"
    assert re.search(rb"ended 2 processes that the ranks left behind", result.stderr)


def guard_of(launcher, running):
    """Waits until all ranks run; returns the launcher's child without the job's id, which is the guard."""
    children = [pid for pid in launcher.leftovers() if stat(pid)[1:2] == [str(running.pid)]]
    (guard,) = [pid for pid in children if b"SMDDP_JOB_ID" not in proc(pid, "environ")]
    return guard


def descriptors(pid):
    try:
        return [os.readlink(f"/proc/{pid}/fd/{name}") for name in os.listdir(f"/proc/{pid}/fd")]
    except FileNotFoundError:  # closed while we looked
        return []

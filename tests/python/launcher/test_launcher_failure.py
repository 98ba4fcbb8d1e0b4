"""The failure of a rank: its effect on the other ranks, the launcher's report, and the exit code."""

import re
import sys
import time

import pytest
from launcher_harness import SMDDPRUN, WITHOUT_PIDFD, after

PROGRAMS = pytest.mark.parametrize("program", [SMDDPRUN, WITHOUT_PIDFD], ids=["pidfd", "sigchld"])

# Rank 1 executes $1. The others would run for long.
ONE_FAILS = "[ $SMDDP_RANK = 1 ] || exec sleep 100; echo $$ > victim; echo last words; eval $1"


@PROGRAMS
@pytest.mark.parametrize(
    "end,code,said",
    [
        ("exit 3", 3, "exit code 3"),
        ("kill -9 $$", 137, "killed by SIGKILL"),
        ("kill -SEGV $$", 139, "killed by SIGSEGV"),
    ],
)
def test_first_failure_ends_the_others_and_is_explained(launcher, program, end, code, said):
    begin = time.monotonic()
    result = launcher.run("-np", 3, "--grace", "0.2", "bash", "-c", ONE_FAILS, "bash", end, program=program)
    assert result.code == code
    pid = (launcher.work / "victim").read_text().strip()
    assert f"rank 1 failed first: pid {pid}, {said}" in result.messages
    assert "the last lines of rank 1:\n  | last words\n" in result.messages
    for rank in (0, 2):
        assert re.search(rf"rank {rank} \(pid \d+\) was ended by smddprun with SIGTERM", result.messages)
    assert result.messages.endswith(f"smddprun: exit code {code}\n")
    assert time.monotonic() - begin < 5


def test_all_succeed(launcher):
    result = launcher.run("-np", 8, "true")
    assert result.code == 0 and result.stderr == b"" and result.stdout == b""


def test_a_rank_that_ends_well_early_ends_nobody(launcher):
    result = launcher.run(
        "-np", 2, "--grace", 0, "bash", "-c", "[ $SMDDP_RANK = 0 ] || { sleep 0.5; echo done; }"
    )
    assert result.code == 0 and result.lines == ["[1] done"]


def test_the_others_may_end_by_themselves_during_the_grace_period(launcher):
    dead = "grep -q ') Z' /proc/$(cat one)/stat"
    script = (
        "[ $SMDDP_RANK = 1 ] && { echo $$ > one; exit 7; }; "
        f"until [ -s one ] && {dead}; do sleep 0.01; done; sleep 0.5; echo rank 1 is gone >&2; exit 1"
    )
    begin = time.monotonic()
    result = launcher.run("-np", 3, "bash", "-c", script)
    seconds = time.monotonic() - begin
    assert result.code == 7
    assert "[0] rank 1 is gone" in result.messages and "[2] rank 1 is gone" in result.messages
    later = re.search(r"rank 0 \(pid \d+\) ended (\d\.\d) s later: exit code 1", result.messages)
    assert 0.1 <= float(later[1]) <= seconds
    assert "was ended by" not in result.messages


def test_sigterm_then_sigkill(launcher):
    script = (
        "[ $SMDDP_RANK = 1 ] && { sleep 0.3; exit 7; }; trap 'echo not me' TERM; while :; do sleep 0.1; done"
    )
    begin = time.monotonic()
    result = launcher.run("-np", 2, "--grace", 0, "bash", "-c", script)
    assert result.code == 7 and "[0] not me" in result.lines
    assert "rank 0" in result.messages and "was ended by smddprun with SIGKILL" in result.messages
    assert 10 < time.monotonic() - begin < 14


@pytest.mark.parametrize("repeat", range(5))
def test_the_first_of_a_chain_is_named_first(launcher, repeat):
    """The ranks fail within milliseconds of each other, one because of the other."""
    launcher.script(
        "train.py",
        """
import os, pathlib, sys, time
rank, size = int(os.environ["SMDDP_RANK"]), int(os.environ["SMDDP_SIZE"])
pathlib.Path(f"pid-{rank}").write_text(f"{os.getpid()}\\n")
pids = []
for r in range(size):
    while not (p := pathlib.Path(f"pid-{r}")).exists() or not p.read_text().endswith("\\n"): time.sleep(0.01)
    pids.append(int(p.read_text()))
if rank < size - 1:  # follows the death of the next one, as the engine does
    fd = os.pidfd_open(pids[rank + 1])
    import select; select.select([fd], [], [])
os._exit(10 + rank)
""",
    )
    result = launcher.run("-np", 4, "train.py")
    assert result.code == 13
    assert "rank 3 failed first" in result.messages
    order = re.findall(r"rank (\d) \(pid \d+\) ended", result.messages)
    assert order == ["2", "1", "0"]


@PROGRAMS
@pytest.mark.parametrize("end,status", [("exit 3", 3 << 8), ("kill -9 $$", 9)])
def test_a_dead_rank_stays_a_zombie_for_its_peers(launcher, program, end, status):
    """The other ranks read from /proc why it died. See Note [a dead rank stays a zombie]."""
    launcher.script(
        "look.py",
        """
import pathlib, time
path = pathlib.Path("victim")
while not path.exists() or not path.read_text().endswith("\\n"): time.sleep(0.01)
stat = pathlib.Path(f"/proc/{path.read_text().strip()}/stat")
def fields(): return stat.read_text().rpartition(")")[2].split()
while fields()[0] != "Z": time.sleep(0.01)
time.sleep(0.4)
print(fields()[0], fields()[49])
""",
    )
    script = f"[ $SMDDP_RANK = 1 ] || exec {sys.executable} look.py; echo $$ > tmp; mv tmp victim; eval $1"
    result = launcher.run("-np", 2, "bash", "-c", script, "bash", end, program=program)
    assert result.lines == [f"[0] Z {status}"]


def test_the_summary_shows_the_last_twenty_lines_of_both_streams(launcher):
    launcher.script(
        "train.py",
        "import sys, time\nfor i in range(50): print(i, flush=True)\ntime.sleep(0.2)\n"
        "for i in range(5): print('bar', i, end='\\r', file=sys.stderr)\nprint(file=sys.stderr); 1 / 0",
    )
    result = launcher.run("-np", 1, "train.py")
    assert result.code == 1
    shown = re.findall(r"^  \| (.*)$", result.messages, re.MULTILINE)
    assert len(shown) == 20 and "49" in shown and "29" not in shown and "ZeroDivisionError" in shown[-1]
    assert "bar 4" in shown and "bar 3" not in shown


def test_timeout(launcher):
    begin = time.monotonic()
    result = launcher.run("-np", 2, "--timeout", "0.5", "sleep", "100")
    assert result.code == 124 and 0.5 < time.monotonic() - begin < 5
    assert "longer than --timeout 0.5 seconds" in result.messages and result.messages.count("SIGTERM") == 2


def test_timeout_that_is_not_reached(launcher):
    assert launcher.run("-np", 2, "--timeout", "15", "true").code == 0


def test_limits_may_be_longer_than_any_job(launcher):
    """The timeout is longer than the longest one that epoll takes."""
    result = launcher.run("-np", 1, "--timeout", "99999999", "--grace", "99999999", "bash", "-c", "exit 3")
    assert result.code == 3 and "rank 0 failed first" in result.messages


def test_a_process_limit_is_said(launcher):
    program = after(
        "import os",
        "def fork(): raise BlockingIOError(11, 'Resource temporarily unavailable')",
        "os.fork = fork",
    )
    result = launcher.run("-np", 1, "true", program=program)
    assert result.code == 1
    assert re.fullmatch(r"smddprun: .*: Resource temporarily unavailable; .*ulimit.*\n", result.messages)


def test_verbose_says_what_happens(launcher):
    result = launcher.run("-v", "-np", 2, "true")
    for part in (
        "2 ranks",
        "directory",
        "command: ",
        "rank 0 is pid",
        "rank 1 is pid",
        "rank 1 ended: exit code 0",
        "succeeded",
    ):
        assert part in result.messages


def test_a_rank_that_cannot_be_started_is_named_and_the_others_are_ended(launcher):
    program = ("bash", "-c", 'ulimit -n 30; exec "$@"', "bash", *SMDDPRUN)
    result = launcher.run("-np", 30, "sleep", 100, program=program)
    assert result.code == 126
    assert re.search(r"rank \d+ of 30 can't be started: Too many open files.*ulimit", result.messages)

"""--max-restarts: which ends start the job again, and that a signal ends it for good."""

import signal

import pytest
from launcher_harness import after, wait_until

from smddprun import restarts

COUNTS = 'echo "try $SMDDP_RESTART_COUNT"; '


def tries(result):
    return [line.rpartition("try ")[2] for line in result.lines if "try " in line]


def test_a_job_that_fails_is_started_again(launcher):
    script = COUNTS + 'test "$SMDDP_RESTART_COUNT" = 2 || exit 7'
    result = launcher.run("-np", "1", "--max-restarts", "5", "sh", "-c", script)
    assert (result.code, tries(result)) == (0, ["0", "1", "2"]), result.messages
    assert "smddprun: the job has failed, exit code 7; start 1 of 5 again" in result.messages
    assert "smddprun: the job has failed, exit code 7; start 2 of 5 again" in result.messages


def test_the_last_exit_code_is_that_of_the_job(launcher):
    result = launcher.run("-np", "1", "--max-restarts", "1", "sh", "-c", COUNTS + "kill -KILL $$")
    assert (result.code, tries(result)) == (128 + signal.SIGKILL, ["0", "1"]), result.messages


@pytest.mark.parametrize("most", ["0", "3"])
def test_a_job_that_succeeds_runs_once(launcher, most):
    result = launcher.run("-np", "1", "--max-restarts", most, "sh", "-c", "echo try 0")
    assert (result.code, tries(result)) == (0, ["0"]), result.messages


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["no-such-command"], 127),
        (["--timeout", "0.5", "sleep", "20"], 124),
        (["sh", "-c", "exit 2"], 2),  # as of a mistake on the script's own command line
    ],
)
def test_what_another_try_would_not_change(launcher, words, code):
    result = launcher.run("-np", "1", "--max-restarts", "3", *words)
    assert result.code == code and "again" not in result.messages, result.messages


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_for_good(launcher, number):
    # A shell that waits for `sleep 20` would lose a signal that comes while it starts that command.
    end = f"kill $!; trap - INT TERM; kill -{int(number)} $$"
    lines = [f"trap '{end}' INT TERM", "sleep 20 &", "echo $SMDDP_RESTART_COUNT > started", "wait"]
    script = launcher.script("wait.sh", "\n".join(lines) + "\n")
    running = launcher.start("-np", "1", "--max-restarts", "3", "sh", script)
    assert launcher.wait_for_files("started") == ["0"]
    running.signal(number)
    result = running.finish()
    assert result.code == 128 + number and "start 1 of" not in result.messages, result.messages


def test_the_ranks_end_with_a_launcher_that_is_killed(launcher):
    script = launcher.script("wait.sh", "echo > started\nsleep 20\n")
    running = launcher.start("-np", "1", "--max-restarts", "3", "sh", script)
    launcher.wait_for_files("started")
    running.signal(signal.SIGKILL)
    running.finish()
    wait_until(lambda: not launcher.leftovers(), "the end of the ranks", seconds=8)


def test_a_number_is_needed(launcher):
    result = launcher.run("--max-restarts", "often", "true")
    assert result.code == 2 and "--max-restarts 'often': give a whole number" in result.messages


def test_a_rank_of_another_launcher_is_not_started_again(launcher):
    rank = {"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "2"}
    result = launcher.run("--max-restarts", "3", "sh", "-c", "exit 7", env=rank)
    assert result.code == 7 and "again" not in result.messages, result.messages


def test_the_pause_grows():
    assert [restarts.pause_seconds(count) for count in (1, 2, 3, 4)] == [0.0, 0.5, 1.0, 2.0]
    assert restarts.pause_seconds(100) == restarts.pause_seconds(9) == 30.0


def test_a_signal_ends_the_pause(launcher):
    running = launcher.start(
        "-np",
        "1",
        "--max-restarts",
        "9",
        "sh",
        "-c",
        "echo > started; exit 7",
        program=after("from smddprun import restarts", "restarts.pause_seconds = lambda count: 60"),
    )
    launcher.wait_for_files("started")
    running.signal(signal.SIGTERM)
    assert running.finish().code in (7, 128 + signal.SIGTERM)

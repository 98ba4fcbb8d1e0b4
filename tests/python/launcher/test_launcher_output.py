"""The launcher's output: streams, tags, whole lines, terminals, files and standard input."""

import contextlib
import fcntl
import os
import re
import signal
import struct
import subprocess
import sys
import termios
import time

import pytest
from launcher_harness import LIMIT_SECONDS, SMDDPRUN, after, alive, wait_until
from marked_processes import kill

from smddprun.streams import open_pipe


class Terminal:
    """A pseudo-terminal to which a launcher writes."""

    def __init__(self, rows=33, columns=77):
        self._ours, self.theirs = os.openpty()
        os.set_blocking(self._ours, False)
        self.resize(rows, columns)
        self.text = ""

    def resize(self, rows, columns):
        fcntl.ioctl(self._ours, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def read(self):
        with contextlib.suppress(OSError):  # nothing there, or closed on the other side
            self.text += os.read(self._ours, 1 << 16).decode()
        return self.text

    def wait_for(self, part):
        wait_until(lambda: part in self.read(), f"{part!r} in {self.text!r}")

    def close(self):
        os.close(self._ours)
        os.close(self.theirs)


@pytest.fixture
def terminal():
    result = Terminal()
    yield result
    result.close()


def test_streams_and_tags(launcher):
    result = launcher.run("-np", 3, "bash", "-c", "echo out $SMDDP_RANK; echo err $SMDDP_RANK >&2")
    assert result.code == 0
    assert sorted(result.lines) == [f"[{r}] out {r}" for r in range(3)]
    assert sorted(result.messages.splitlines()) == [f"[{r}] err {r}" for r in range(3)]


@pytest.mark.parametrize(
    "ranks,option,expected",
    [
        (1, [], b"a\n"),
        (1, ["--tag-output"], b"[0] a\n"),
        (2, ["--no-tag-output"], b"a\na\n"),
    ],
)
def test_tags_on_and_off(launcher, ranks, option, expected):
    assert launcher.run("-np", ranks, *option, "echo", "a").stdout == expected


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_last_line_without_its_end(launcher, ranks):
    result = launcher.run("-np", ranks, "bash", "-c", "printf no-end; printf no-err >&2")
    assert sorted(result.stdout.split(b"\n")) == (
        [b"no-end"] if ranks == 1 else [b"", b"[0] no-end", b"[1] no-end"]
    )
    assert b"no-err" in result.stderr


def test_whole_lines_of_eight_ranks_under_load(launcher):
    launcher.script(
        "write.py",
        """
import os, random
rank = os.environ["SMDDP_RANK"]
data = b"".join(b"%s:%d:" % (rank.encode(), i) + b"x" * random.randint(0, 300) + b"\\n" for i in range(5000))
while data:  # in pieces that have nothing to do with lines
    n = random.randint(1, 9000)
    os.write(random.choice([1]), data[:n])
    data = data[n:]
""",
    )
    result = launcher.run("-np", 8, "write.py")
    assert result.code == 0
    seen = {str(rank): 0 for rank in range(8)}
    for line in result.lines:
        tag, rank, number = re.fullmatch(r"\[(\d)\] (\d):(\d+):x*", line).groups()
        assert tag == rank and int(number) == seen[rank]
        seen[rank] += 1
    assert set(seen.values()) == {5000}


def test_stdout_and_stderr_in_one_file_keep_whole_lines(launcher):
    script = "for i in {1..300}; do echo out; echo err >&2; done"
    result = launcher.run("-np", 3, "bash", "-c", script, stderr=subprocess.STDOUT)
    assert len(result.lines) == 1800 and set(result.lines) == {
        f"[{r}] {w}" for r in range(3) for w in ("out", "err")
    }


def test_binary_output_of_one_rank_is_unchanged(launcher):
    data = bytes(range(256)) * 5000
    (launcher.work / "data").write_bytes(data)
    assert launcher.run("-np", 1, "cat", "data").stdout == data


def test_binary_and_very_long_lines_of_two_ranks(launcher):
    data = b"\0\xff\xfe" * 1_000_000 + b"\n"
    (launcher.work / "data").write_bytes(data)
    result = launcher.run("-np", 2, "cat", "data")
    assert result.code == 0
    for rank in (b"[0] ", b"[1] "):
        mine = [line[4:] for line in result.stdout.splitlines() if line.startswith(rank)]
        assert b"".join(mine) == data[:-1]


def test_an_update_of_a_progress_bar_is_passed_on_when_the_next_begins(launcher):
    script = "test $SMDDP_RANK = 0 || exit 0; printf '10%%\\r2'; sleep 30"
    running = launcher.start("-np", 2, "bash", "-c", script)
    begin = time.monotonic()
    assert os.read(running.process.stdout.fileno(), 100) == b"[0] 10%\r"
    assert time.monotonic() - begin < 10
    running.signal(signal.SIGTERM)
    assert running.finish().code == 143


def test_output_comes_at_once_not_at_the_end(launcher):
    launcher.script("train.py", "import time; print('step 1'); time.sleep(30)")
    running = launcher.start("-np", 2, "train.py")
    got = b""
    while got.count(b"\n") < 2:
        got += os.read(running.process.stdout.fileno(), 100)
    assert sorted(got.splitlines()) == [b"[0] step 1", b"[1] step 1"]
    running.signal(signal.SIGTERM)
    running.finish()


def test_output_dir_has_the_bytes_of_each_rank(launcher):
    result = launcher.run(
        "-np",
        2,
        "--output-dir",
        "logs/deep",
        "bash",
        "-c",
        "printf 'a\\rb\\n'; printf $SMDDP_RANK; printf e >&2",
    )
    assert result.code == 0 and b"[1] " in result.stdout
    files = {path.name: path.read_bytes() for path in (launcher.work / "logs" / "deep").iterdir()}
    assert files == {
        "rank-0.stdout": b"a\rb\n0",
        "rank-0.stderr": b"e",
        "rank-1.stdout": b"a\rb\n1",
        "rank-1.stderr": b"e",
    }


def test_a_log_that_is_cut_off_is_said_and_no_success(launcher):
    """The job goes on. A limit of 1 KiB for a file stands for a full disk."""
    limited = ["bash", "-c", 'ulimit -f 1; exec "$@"', "bash", *SMDDPRUN]
    script = "[ $SMDDP_RANK = 1 ] || printf '%02000d\\n'; echo end"
    result = launcher.run("-np", 2, "--output-dir", "logs", "bash", "-c", script, program=limited)
    assert result.code == 1 and result.lines.count("[0] end") == result.lines.count("[1] end") == 1
    assert "can't write logs/rank-0.stdout: File too large; the file ends here" in result.messages


def test_output_that_cannot_be_written_is_said_and_no_success(launcher):
    # One rank: a second one that writes later gets SIGPIPE.
    with open("/dev/full", "w") as full:
        result = launcher.run("-np", 1, "echo", "a", stdout=full)
        assert result.code == 1
        assert (
            result.messages
            == "smddprun: can't write stdout: No space left on device; the output from here on is lost\n"
        )
        assert launcher.run("-np", 1, "echo", "a", stdout=full, stderr=full).code == 1
        result = launcher.run("-np", 2, "yes", stdout=full)
        assert result.code == 128 + signal.SIGPIPE and "can't write stdout: No space" in result.messages


def test_a_writer_that_outlives_the_job_does_not_hold_it_up(launcher):
    """The launcher cannot find it: it has no environment, and its own session. SIGPIPE ends it."""
    script = "env -i setsid yes & echo $! > writer; sleep 0.1"
    with open(os.devnull, "w") as null:
        result = launcher.run("-np", 1, "--tag-output", "bash", "-c", script, stdout=null)
    (writer,) = map(int, launcher.wait_for_files("writer"))
    try:
        assert result.code == 0
        wait_until(lambda: not alive(writer), "it is ended")
    finally:
        if alive(writer):  # without its mark the fixture would not find it
            kill(writer)


@pytest.mark.parametrize("refused", [3, 1000])
def test_without_more_threads_output_is_written_later(launcher, refused):
    """The launcher gets no thread while the ranks have as many as `ulimit -u` allows."""
    program = after(
        "import threading",
        "start, refused = threading.Thread.start, [None] * " + str(refused),
        "def limited(thread):",
        '    if refused and refused.pop() is None: raise RuntimeError("can\'t start new thread")',
        "    start(thread)",
        "threading.Thread.start = limited",
    )
    result = launcher.run(
        "-np", 2, "bash", "-c", "for i in 1 2 3 4 5; do sleep 0.1; echo $i; done", program=program
    )
    assert result.code == 0 and result.stderr == b""
    assert sorted(result.lines) == [f"[{rank}] {i}" for rank in range(2) for i in range(1, 6)]


@pytest.mark.parametrize("pipes,size", [(2, 1 << 20), (64, 1 << 18), (4096, 1 << 16)])
def test_many_pipes_are_smaller_ones(pipes, size):
    ends = open_pipe(pipes)
    try:
        assert fcntl.fcntl(ends.ours, 1032) == size  # F_GETPIPE_SZ
    finally:
        for fd in ends:
            os.close(fd)


def test_closed_standard_descriptors(launcher):
    command = " ".join([sys.executable, "-m", "smddprun", "-np", "2", "bash", "-c", "'echo a; echo b >&2'"])
    for redirections in ("<&-", ">&-", "2>&-", "<&- >&-", "<&- >&- 2>&-"):
        result = launcher.run(
            "--", f"exec {command} {redirections}", program=("bash", "-c", 'eval "$2"', "bash")
        )
        assert result.code == 0
        assert (b"[1] a\n" in result.stdout) == (">&-" not in redirections.replace("2>&-", ""))


def test_closed_standard_input_is_no_free_descriptor_in_a_rank(launcher):
    launcher.script("open.py", "print(open('open.py').fileno() > 2)")
    command = " ".join([sys.executable, "-m", "smddprun", "-np", "2", "open.py"])
    result = launcher.run("-c", f"exec {command} <&-", program=("bash",))
    assert sorted(result.lines) == ["[0] True", "[1] True"]


def test_rank_0_reads_stdin_and_the_others_nothing(launcher):
    running = launcher.start("-np", 2, "bash", "-c", "cat; echo end", stdin=subprocess.PIPE)
    stdout, _ = running.process.communicate(b"typed\n", timeout=LIMIT_SECONDS)
    assert sorted(stdout.decode().splitlines()) == ["[0] end", "[0] typed", "[1] end"]


def test_descriptors_that_the_launcher_was_given_reach_the_ranks(launcher):
    read_end, write_end = os.pipe()
    running = launcher.start("-np", 1, "bash", "-c", f"echo x >&{write_end}", pass_fds=[write_end])
    os.close(write_end)
    assert running.finish().code == 0 and os.read(read_end, 10) == b"x\n"
    assert os.read(read_end, 10) == b"", "someone still holds the descriptor"
    os.close(read_end)


def test_on_a_terminal_rank_0_has_one_and_bars_work(launcher, terminal):
    launcher.script(
        "train.py",
        """
import os, pathlib, sys, time
if os.environ["SMDDP_RANK"] == "0":
    print(sys.stdout.isatty(), sys.stderr.isatty(), tuple(os.get_terminal_size(1)))
    sys.stdout.write("\\r 50%")
    sys.stdout.flush()
    while not pathlib.Path("go").exists(): time.sleep(0.01)
    print("\\r100%")
else:
    while not pathlib.Path("say").exists(): time.sleep(0.01)
    print("hello", sys.stdout.isatty())
    while not pathlib.Path("go").exists(): time.sleep(0.01)
""",
    )
    running = launcher.start("-np", 2, "train.py", stdout=terminal.theirs, stderr=terminal.theirs)
    terminal.wait_for("True True (77, 33)\r\n\r 50%")  # at once, without a tag
    launcher.script("say", "")
    terminal.wait_for("\r 50%\r\x1b[K[1] hello False\r\n 50%")
    launcher.script("go", "")
    assert running.finish().code == 0
    terminal.wait_for("\r100%\r\n")


def test_a_terminal_that_changes_its_size(launcher, terminal):
    launcher.script(
        "train.py",
        """
import os, signal, time
signal.signal(signal.SIGWINCH, lambda *_: print(tuple(os.get_terminal_size(1))))
print("ready")
for _ in range(1000): time.sleep(0.01)
""",
    )
    running = launcher.start("-np", 1, "train.py", stdout=terminal.theirs, stderr=terminal.theirs)
    terminal.wait_for("ready")
    terminal.resize(20, 100)
    running.signal(signal.SIGWINCH)  # the kernel sends it where the terminal is a controlling one
    terminal.wait_for("(100, 20)")
    running.signal(signal.SIGTERM)
    assert running.finish().code == 143


def test_tag_output_on_a_terminal_tags_rank_0_as_well(launcher, terminal):
    running = launcher.start(
        "-np", 2, "--tag-output", "echo", "a", stdout=terminal.theirs, stderr=terminal.theirs
    )
    assert running.finish().code == 0
    terminal.wait_for("[0] a\r\n")
    terminal.wait_for("[1] a\r\n")


def test_a_terminal_that_hangs_up_ends_the_job(launcher):
    terminal = Terminal()
    running = launcher.start("-np", 2, "yes", stdout=terminal.theirs, stderr=terminal.theirs)
    terminal.wait_for("y")
    terminal.close()
    assert running.finish().code != 0


@pytest.mark.parametrize("kind", ["fifo", "link", "directory"])
def test_a_log_that_is_no_file_is_refused(launcher, kind):
    """A FIFO without a reader would hold up the launcher, deaf to signals; a link may lead to any file."""
    (launcher.work / "logs").mkdir()
    log, precious = launcher.work / "logs" / "rank-0.stdout", launcher.script("precious", "mine")
    make = {"fifo": os.mkfifo, "link": lambda path: path.symlink_to(precious), "directory": os.mkdir}[kind]
    make(log)
    result = launcher.run("-np", 1, "--output-dir", "logs", "echo", "x")
    assert result.code == 1 and "logs/rank-0.stdout can't be written" in result.messages
    assert "name another --output-dir" in result.messages
    assert precious.read_text() == "mine"


def test_an_older_log_is_replaced(launcher):
    (launcher.work / "rank-0.stdout").write_text("much longer than what comes")
    assert launcher.run("-np", 1, "--output-dir", ".", "echo", "x").code == 0
    assert (launcher.work / "rank-0.stdout").read_text() == "x\n"


def test_quiet(launcher):
    script = "echo out $SMDDP_RANK; echo err $SMDDP_RANK >&2; [ $SMDDP_RANK = 0 ] || exit 3"
    result = launcher.run("-np", 2, "-q", "--output-dir", ".", "bash", "-c", script)
    assert result.code == 3 and result.lines == ["out 0"]
    assert result.messages.startswith("err 0\nsmddprun: rank 1 failed first")
    assert "  | out 1\n  | err 1\n" in result.messages  # in the report of the failure
    assert (launcher.work / "rank-1.stderr").read_text() == "err 1\n"

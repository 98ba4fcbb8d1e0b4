"""Runs commands of other launchers for a test, with a time limit, and finds what they leave behind.

Every process that is started here has a mark in its environment. At the end none may be left, nor a file in
the directory where the ranks meet.
"""

from __future__ import annotations

import pathlib
import shutil
import subprocess
import sys
import tempfile
import time
import uuid
from typing import List, Mapping, NamedTuple, Sequence

from marked_processes import environ_outside_jobs, kill, marked_processes

ROOT = pathlib.Path(__file__).resolve().parents[3]
LIMIT_SECONDS = 150.0
_MARK = "TF_SMDDP_TEST_FOREIGN_JOB"

# Each rank reports its number with one write, so that the lines of different processes stay whole.
WHO = """
import os, sys
import tensorflow as tf
import tf_smddp as sdp
sdp.init()
total = sdp.allreduce(tf.constant([1 + sdp.rank()]), 0, 1, op=sdp.ReduceOp.SUM).numpy()[0]
os.write(1, f"{sys.argv[1]}: rank {sdp.rank()} of {sdp.size()}, sum {total}\\n".encode())
"""


class Ended(NamedTuple):
    """The exit code and the output of a command."""

    code: int
    output: str

    def lines(self, start: str) -> List[str]:
        """The lines that begin so, sorted."""
        return sorted(line for line in self.output.splitlines() if line.startswith(start))


class Command:
    """A running command, with all its output in one file."""

    def __init__(self, words: Sequence[str], cwd: pathlib.Path, environ: Mapping[str, str]) -> None:
        self._output = open(cwd / f"output-{uuid.uuid4().hex}", "w+b")  # noqa: SIM115, it is closed in close()
        self.process = subprocess.Popen(
            words,
            cwd=cwd,
            env=environ,
            stdin=subprocess.DEVNULL,
            stdout=self._output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    def output(self) -> str:
        """Its output so far; its progress bars come through a terminal that some launchers make."""
        self._output.seek(0)
        return self._output.read().decode(errors="replace").replace("\r\n", "\n")

    def finish(self, seconds: float = LIMIT_SECONDS) -> Ended:
        """Waits for the end; a command that takes longer has failed the test."""
        try:
            code = self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"it took longer than {seconds} s, output:\n{self.output()}") from None
        return Ended(code, self.output())

    def close(self) -> None:
        """Ends it by force if it still runs."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(LIMIT_SECONDS)
        self._output.close()


class Bench:
    """Runs a test's commands in a folder of their own. Use it as a context manager."""

    def __init__(self) -> None:
        # A socket is created below it, and the path of a socket must be short.
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="fj-", dir="/tmp"))
        self.meeting_folder = self.folder / "m"
        self.meeting_folder.mkdir()
        (self.folder / "tmp").mkdir()
        self.who = self.folder / "who.py"
        self.who.write_text(WHO)
        self._mark = uuid.uuid4().hex
        self._shared_memory = _mpich_files()
        self._commands: List[Command] = []

    def environ(self, **changes: str) -> dict[str, str]:
        """The environment of a command."""
        environ = environ_outside_jobs()
        environ.update(
            {
                _MARK: self._mark,
                "SMDDP_TMPDIR": str(self.meeting_folder),
                "SMDDP_TEST_STRICT": "1",
                "TMPDIR": str(self.folder / "tmp"),
                "PYTHONDONTWRITEBYTECODE": "1",
                # Several jobs run at the same time.
                "OMP_NUM_THREADS": "1",
                "TF_NUM_INTRAOP_THREADS": "1",
                "TF_NUM_INTEROP_THREADS": "2",
            }
        )
        environ.update(changes)
        return environ

    def start(self, *words: object, **changes: str) -> Command:
        """Starts a command. `changes`: variables of its environment."""
        command = Command([str(word) for word in words], self.folder, self.environ(**changes))
        self._commands.append(command)
        return command

    def run(self, *words: object, **changes: str) -> Ended:
        """Starts a command and waits for its end."""
        return self.start(*words, **changes).finish()

    def processes(self) -> List[int]:
        """The processes of this test."""
        return marked_processes(_MARK, self._mark)

    def meeting_places(self) -> List[str]:
        """The paths in the directory where the ranks meet."""
        return [str(path) for path in self.meeting_folder.rglob("*")]

    def __enter__(self) -> Bench:
        return self

    def __exit__(self, kind: object, *error: object) -> None:
        deadline = time.monotonic() + 5.0
        while self.processes() and time.monotonic() < deadline:
            time.sleep(0.05)
        left = self.processes()
        for pid in left:
            kill(pid)
        for command in self._commands:
            command.close()
        places = self.meeting_places()
        shutil.rmtree(self.folder)
        # MPICH leaves its own behind when a rank is killed, and they would fill /dev/shm.
        for path in _mpich_files() - self._shared_memory:
            path.unlink(missing_ok=True)
        if kind is None:
            assert left == [], "processes were left"
            assert places == [], "a meeting place was left"


def _mpich_files() -> set[pathlib.Path]:
    return set(pathlib.Path("/dev/shm").glob("mpich_shm_*"))


def digits(*arguments: object) -> List[str]:
    """Returns the words that run the example."""
    return [sys.executable, str(ROOT / "examples" / "digits.py"), "--no-progress", *map(str, arguments)]


def check_digits(ended: Ended) -> None:
    """Checks that two ranks have trained one model."""
    assert ended.code == 0, ended.output
    assert ended.lines("ranks") == ["ranks          2"], ended.output
    assert ended.lines("weights") == ["weights        equal to the bit on all ranks"], ended.output


def check_who(ended: Ended, name: str, size: int = 2) -> None:
    """Checks the output of `size` ranks of one job."""
    assert ended.code == 0, ended.output
    total = size * (size + 1) // 2
    expected = [f"{name}: rank {rank} of {size}, sum {total}" for rank in range(size)]
    assert ended.lines(f"{name}: ") == expected, ended.output

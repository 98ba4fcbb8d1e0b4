"""Runs smddprun for a test, with a time limit, and finds the processes and files that a job leaves behind.

Every launcher has a mark in its environment, which all processes of its job inherit. After each test no
process may have the mark, and the directory for rendezvous directories must be empty.
"""

from __future__ import annotations

import fcntl
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import termios
import time
import uuid
from collections.abc import Sequence
from typing import Callable

from marked_processes import kill

import smddprun

LIMIT_SECONDS = 20.0
MARK = "SMDDP_LAUNCHER_TEST"
PACKAGE_PARENT = str(pathlib.Path(smddprun.__file__).resolve().parents[1])
SMDDPRUN = (sys.executable, "-m", "smddprun")
# The launcher without pidfd_open, which old kernels and some sandboxes refuse.
WITHOUT_PIDFD = (
    sys.executable,
    "-c",
    "import os, sys; vars(os).pop('pidfd_open', None)\nfrom smddprun.__main__ import main\nsys.exit(main())",
)


def after(*statements: str) -> tuple[str, ...]:
    """Returns a program that executes statements and then runs the launcher."""
    lines = ["import signal, sys", *statements, "from smddprun.__main__ import main", "sys.exit(main())"]
    return (sys.executable, "-c", "\n".join(lines))


# Variables that would change the behaviour of the launcher under test.
_FOREIGN = (
    "SMDDP_",
    "OMPI_",
    "PMI_",
    "PMIX_",
    "MV2_",
    "SLURM_",
    "OMP_",
    "TF_NUM_",
    "PYTHONUNBUFFERED",
    "TMPDIR",
    "RANK",
    "WORLD_SIZE",
    "LOCAL_",
    "MASTER_",
    "TORCHELASTIC_",
)


def wait_until(condition: Callable[[], object], what: str, seconds: float = LIMIT_SECONDS) -> object:
    """Returns the condition's first true value. Fails after `seconds`."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        value = condition()
        if value:
            return value
        time.sleep(0.01)
    raise AssertionError(f"not within {seconds} s: {what}")


def stat(pid: int) -> list[str]:
    """Returns the fields of /proc/<pid>/stat from the state on, or [""] if there is no such process."""
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return [""]


def state(pid: int) -> str:
    """Returns the process's state, a letter, or "" if there is no such process."""
    return stat(pid)[0]


def cpu_ticks(pid: int) -> int:
    """Returns the CPU time that the process has used, in hundredths of a second."""
    return sum(map(int, stat(pid)[11:13]))


def unread(fd: int) -> int:
    """Returns the number of bytes in a pipe."""
    return int.from_bytes(fcntl.ioctl(fd, termios.FIONREAD, b"\0" * 4), sys.byteorder)


def proc(pid: int, name: str) -> bytes:
    """Returns the contents of a file in /proc/<pid>."""
    return pathlib.Path(f"/proc/{pid}/{name}").read_bytes()


def alive(pid: int) -> bool:
    """Returns whether the process runs. A zombie does not."""
    return state(pid) not in ("", "Z", "X")


def processes_with(variable: str, value: str) -> list[int]:
    """Returns the running processes that have the variable in their environment."""
    wanted = f"{variable}={value}".encode()
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdecimal():
            try:
                environ = proc(int(entry), "environ")
            except OSError:
                continue  # ended meanwhile, or another user's
            if wanted in environ.split(b"\0") and alive(int(entry)):
                found.append(int(entry))
    return found


# The launcher's note depends on the cores of this machine, so it is kept apart.
_NOTE = re.compile(rb"^smddprun: note: .*\n", re.MULTILINE)


class Result:
    """The exit code and the output of a launcher; `notes` are its lines about the cores."""

    def __init__(self, code: int, stdout: bytes, stderr: bytes) -> None:
        self.code = code
        self.notes: list[str] = []
        self.stdout = self._without_notes(stdout)
        self.stderr = self._without_notes(stderr)

    def _without_notes(self, output: bytes) -> bytes:
        if b"smddprun: note: " not in output:  # at once for 100 MB, which a search for lines is not
            return output
        self.notes += [line.decode().rstrip() for line in _NOTE.findall(output)]
        return _NOTE.sub(b"", output)

    @property
    def lines(self) -> list[str]:
        return self.stdout.decode().splitlines()

    @property
    def messages(self) -> str:
        return self.stderr.decode()


class Launcher:
    """One running smddprun."""

    def __init__(self, process: subprocess.Popen) -> None:
        self.process = process

    @property
    def pid(self) -> int:
        return self.process.pid

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    def finish(self, seconds: float = LIMIT_SECONDS) -> Result:
        """Waits for its end. The test fails if the job takes longer than `seconds`."""
        stdout, stderr = self.process.communicate(timeout=seconds)
        return Result(self.process.returncode, stdout or b"", stderr or b"")


class Harness:
    """Starts launchers for one test in a clean environment, and checks that nothing remains of them."""

    def __init__(self) -> None:
        self.mark = uuid.uuid4().hex
        # A socket is created below it, and the path of a socket must be short.
        self.directory = pathlib.Path(tempfile.mkdtemp(prefix="lt-", dir="/tmp"))
        self.rendezvous_parent = self.directory / "r"
        self.rendezvous_parent.mkdir()
        self.work = self.directory / "w"
        self.work.mkdir()
        self._launchers: list[Launcher] = []

    def environ(self, **changes: str) -> dict[str, str]:
        environ = {name: value for name, value in os.environ.items() if not name.startswith(_FOREIGN)}
        environ.update(
            {MARK: self.mark, "SMDDP_TMPDIR": str(self.rendezvous_parent), "PYTHONPATH": PACKAGE_PARENT}
        )
        environ.update(changes)
        return environ

    def start(
        self,
        *arguments: object,
        program: Sequence[str] = SMDDPRUN,
        env: dict[str, str] | None = None,
        stdin: object = subprocess.DEVNULL,
        stdout: object = subprocess.PIPE,
        stderr: object = subprocess.PIPE,
        **popen: object,
    ) -> Launcher:
        """Starts smddprun in the folder `work`, with the changes `env` to the environment."""
        process = subprocess.Popen(
            [*program, *map(str, arguments)],
            cwd=self.work,
            env=self.environ(**(env or {})),
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            **popen,
        )
        launcher = Launcher(process)
        self._launchers.append(launcher)
        return launcher

    def run(self, *arguments: object, **options: object) -> Result:
        """Starts smddprun and waits for its end."""
        return self.start(*arguments, **options).finish()

    def script(self, name: str, text: str, mode: int = 0o644) -> pathlib.Path:
        """Writes a file into `work`."""
        path = self.work / name
        path.write_text(text)
        path.chmod(mode)
        return path

    def wait_for_files(self, *names: str) -> list[str]:
        """Waits until all files exist in `work` and end in a newline; returns their contents."""

        def contents() -> list[str] | None:
            paths = [self.work / name for name in names]
            texts = [path.read_text() if path.exists() else "" for path in paths]
            return texts if all(text.endswith("\n") for text in texts) else None

        return [text.strip() for text in wait_until(contents, f"files {names}")]

    def leftovers(self) -> list[int]:
        """Returns the processes of this test that still run."""
        return processes_with(MARK, self.mark)

    def close(self) -> None:
        """Fails if anything remains, and removes it in any case."""
        try:
            wait_until(lambda: not self.leftovers(), f"processes {self.leftovers()} end", seconds=8)
            assert os.listdir(self.rendezvous_parent) == [], "a rendezvous directory was left behind"
        finally:
            for pid in self.leftovers():
                kill(pid)
            for launcher in self._launchers:
                launcher.process.wait(LIMIT_SECONDS)
                for stream in (launcher.process.stdout, launcher.process.stderr):
                    if stream is not None:
                        stream.close()
            shutil.rmtree(self.directory)

"""Runs a script as a job of several ranks through smddprun, for a limited time; finds what it left behind.

A script talks to its test with `report(key, value)`, which is put before it: one line per rank and key. Every
process of a job has a mark in its environment; after a job none may be left, nor a file, nor a socket.
"""

from __future__ import annotations

import dataclasses
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time
import uuid
from typing import Any, Dict, List, Optional, Sequence, Union

from marked_processes import environ_outside_jobs, kill, marked_processes

# Far more than any job takes, also on a machine that is busy with other work.
LIMIT_SECONDS = 180.0
ROOT = pathlib.Path(__file__).resolve().parents[2]
_MARK = "TF_SMDDP_TEST_JOB"
# A process that is killed leaves the files of TensorFlow's AutoGraph; torch leaves folders at each end.
_NOT_OURS = ("__autograph", "torchinductor_", "torchelastic_")
_REPORT = """
import json, os, sys, time

def report(key, value):
    rank = os.environ.get("SMDDP_RANK") or os.environ.get("RANK") or "0"
    with open(f"{os.environ['TF_SMDDP_TEST_REPORTS']}/{rank}", "a") as file:
        file.write(json.dumps([key, value]) + "\\n")
"""
TENSORFLOW = """
import gc
gc.disable()  # it takes a fifth of the time that importing TensorFlow takes
import tensorflow as tf
import tf_smddp as sdp
gc.enable()
"""
TORCH = """
import torch
import torch.distributed as dist
import torch_smddp
"""


@dataclasses.dataclass
class Job:
    """How a job ended."""

    exit_code: (
        int  # the launcher's: that of the rank that failed first, 128 + the signal's number for a signal
    )
    output: str  # the launcher's, with all ranks'
    reports: List[Dict[str, Any]]  # by rank: what it reported
    leftovers: List[str]  # what should not be there any more

    def __str__(self) -> str:
        found = f"exit code {self.exit_code}, reports {self.reports}, leftovers {self.leftovers}"
        return f"{found}, output:\n{self.output}"


class RunningJob:
    """A job that has been started. Use it as a context manager: at its end nothing of the job is left."""

    def __init__(
        self,
        num_ranks: int,
        script: str,
        *arguments: str,
        launcher: Union[bool, Sequence[str]] = True,
        options: Sequence[str] = (),
        python: str = sys.executable,
        preamble: str = TENSORFLOW,
    ):
        """Starts a job.

        Args:
            num_ranks: how many ranks.
            script: Python text, run after the preamble; or the path of a file, run as it is.
            arguments: the script's.
            launcher: False starts the script alone, without smddprun. Or the words of another launcher.
            options: smddprun's own.
            python: what runs the launcher and the ranks.
            preamble: what a script in Python text begins with.
        """
        # Short, as a socket's path must be.
        self._folder = pathlib.Path(tempfile.mkdtemp(prefix="job-", dir="/tmp"))
        self._reports = self._folder / "reports"
        self._temporary = self._folder / "tmp"
        self._reports.mkdir()
        self._temporary.mkdir()
        self._mark = uuid.uuid4().hex
        self._num_ranks = num_ranks
        if script.endswith(".py"):
            path = pathlib.Path(script)
        else:
            path = self._folder / "script.py"
            path.write_text(_REPORT + preamble + script)
        start = [python, "-m", "smddprun", "-np", str(num_ranks), *options] if launcher is True else []
        start += [*launcher, python] if isinstance(launcher, (list, tuple)) else [python]
        environ = environ_outside_jobs()
        environ.update(
            {
                _MARK: self._mark,
                "TF_SMDDP_TEST_REPORTS": str(self._reports),
                # AutoGraph compiles what it writes there, and leaves the folder of the compiled files.
                "PYTHONDONTWRITEBYTECODE": "1",
                "TMPDIR": str(self._temporary),
                "SMDDP_TMPDIR": str(self._temporary),
                "SMDDP_TEST_STRICT": "1",
            }
        )
        with open(self._folder / "output", "wb") as output:
            self._process = subprocess.Popen(
                [*start, str(path), *arguments],
                cwd=self._folder,
                env=environ,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def __enter__(self) -> RunningJob:
        return self

    def __exit__(self, *error: Any) -> None:
        for pid in marked_processes(_MARK, self._mark):
            kill(pid)
        self._process.wait(LIMIT_SECONDS)
        shutil.rmtree(self._folder)

    def reports(self) -> List[Dict[str, Any]]:
        """The reports of the ranks so far."""
        found = []
        for rank in range(self._num_ranks):
            path = self._reports / str(rank)
            lines = path.read_text().splitlines() if path.exists() else []
            found.append(dict(json.loads(line) for line in lines))
        return found

    def wait_for(self, key: str, seconds: float = LIMIT_SECONDS) -> List[Any]:
        """Waits until every rank has reported `key`; returns the values by rank."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and self._process.poll() is None:
            values = [report.get(key) for report in self.reports()]
            if None not in values:
                return values
            time.sleep(0.01)
        raise AssertionError(f"not every rank reported {key!r}: {self.finish(0.1)}")

    def finish(self, seconds: float = LIMIT_SECONDS) -> Job:
        """Waits for the end of the job; ends it by force after the time, which fails the test."""
        try:
            exit_code: Optional[int] = self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            exit_code = None
        leftovers = self._leftovers() if exit_code is not None else []
        output = (self._folder / "output").read_text(errors="replace")
        if exit_code is None:
            raise AssertionError(
                f"the job took longer than {seconds} s; reports {self.reports()}, output:\n{output}"
            )
        return Job(exit_code, output, self.reports(), leftovers)

    def _leftovers(self) -> List[str]:
        """The processes and files that are still there, a second after the end."""
        deadline = time.monotonic() + 1.0
        while True:
            found = [f"process {pid}" for pid in marked_processes(_MARK, self._mark)]
            files = [path.relative_to(self._temporary) for path in self._temporary.rglob("*")]
            found += [f"file {path}" for path in files if not path.parts[0].startswith(_NOT_OURS)]
            with open("/proc/net/unix") as sockets:
                found += [f"socket {line.split()[-1]}" for line in sockets if str(self._folder) in line]
            if not found or time.monotonic() > deadline:
                return found
            time.sleep(0.02)


def run_job(
    num_ranks: int,
    script: str,
    *arguments: str,
    launcher: Union[bool, Sequence[str]] = True,
    options: Sequence[str] = (),
    seconds: float = LIMIT_SECONDS,
    python: str = sys.executable,
    preamble: str = TENSORFLOW,
) -> Job:
    """Runs a job to its end (see RunningJob); fails if it takes longer, or leaves anything behind."""
    with RunningJob(
        num_ranks,
        script,
        *arguments,
        launcher=launcher,
        options=options,
        python=python,
        preamble=preamble,
    ) as running:
        job = running.finish(seconds)
        assert not job.leftovers, str(job)
        return job

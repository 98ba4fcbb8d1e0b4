"""Runs one job, with a time limit and a log, and reads what it measured."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import signal
import subprocess
import tempfile
from typing import Dict, List, NamedTuple

from peers.base import Job


class Outcome(NamedTuple):
    """The result of a job."""

    records: List[Dict]  # what the job has written, even if it failed later
    error: str  # "" if the job succeeded


def run_job(job: Job, output: pathlib.Path, limit_seconds: float, log: pathlib.Path) -> Outcome:
    """Runs a job in a process group of its own, and ends all its processes.

    Args:
        job: what to run. It starts in an empty folder, so that no source tree hides an installed package.
        output: the file to which the job writes JSON lines.
        limit_seconds: the time after which the job is ended.
        log: the file to which its output is added.
    """
    output.unlink(missing_ok=True)
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "2", **job.environment}
    error = ""
    with tempfile.TemporaryDirectory() as folder, open(log, "ab") as out:
        out.write(f"$ {' '.join(job.command)}\n".encode())
        out.flush()
        process = subprocess.Popen(
            job.command,
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            code = process.wait(limit_seconds)
            error = f"exit code {code}" if code else ""
        except subprocess.TimeoutExpired:
            error = f"not done after {limit_seconds:.0f} s"
            _signal_group(process.pid, signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(10)
        finally:
            _signal_group(process.pid, signal.SIGKILL)
            process.wait()
    return Outcome(_read_lines(output), error)


def _signal_group(group: int, number: int) -> None:
    try:
        os.killpg(group, number)
    except ProcessLookupError:
        return


def _read_lines(path: pathlib.Path) -> List[Dict]:
    """Reads JSON lines. If the job was ended, the last one may be incomplete; it is ignored."""
    records: List[Dict] = []
    for line in path.read_text().splitlines() if path.exists() else []:
        try:
            records.append(json.loads(line))
        except json.JSONDecodeError:
            break
    return records

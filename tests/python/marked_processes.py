"""Processes that a test has started, directly or not: they have a mark in their environment."""

import contextlib
import os
import pathlib
import signal
from typing import List


def marked_processes(variable: str, value: str) -> List[int]:
    """Returns the pids of the processes that were started with `variable=value`."""
    wanted = f"{variable}={value}".encode()
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdecimal():
            try:
                environ = pathlib.Path(f"/proc/{entry}/environ").read_bytes()
            except OSError:
                continue  # ended meanwhile, or another user's
            if wanted in environ.split(b"\0"):
                found.append(int(entry))
    return found


def kill(pid: int) -> None:
    """Kills a process. It may have ended since it was found."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)

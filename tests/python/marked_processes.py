"""Processes that a test starts, directly or not: their environment, by a mark in which they are found."""

import contextlib
import os
import pathlib
import signal
from typing import Dict, List

# What tells a process that it is a rank: of smddprun, an MPI, Slurm, Horovod or torchrun.
_OF_A_JOB = (
    *("SMDDP_", "OMPI_", "PMI_", "PMIX_", "MPI_LOCAL", "MV2_", "SLURM_", "HOROVOD_", "TORCHELASTIC_"),
    *("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"),
)


def environ_outside_jobs() -> Dict[str, str]:
    """Returns this process's environment for a command that shall not take part in this process's job."""
    return {name: value for name, value in os.environ.items() if not name.startswith(_OF_A_JOB)}


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

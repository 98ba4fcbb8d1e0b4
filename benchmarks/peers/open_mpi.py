"""Debian's Open MPI: MPI_Allreduce in C++.

It is measured in two modes: with its default settings, where it chooses an algorithm by size; and with its
shared-memory collectives (`coll sm`) at the highest priority, which is faster for some sizes.
"""

from __future__ import annotations

import os
import pathlib
import shutil
import subprocess
from typing import List, Optional

from workloads.options import WorkOptions

from peers import install
from peers.base import BUILT, Implementation, Job

LAUNCHER = "mpirun.openmpi"


def launch(ranks: int) -> List[str]:
    """Returns the mpirun command that starts `ranks` processes on this host, even with fewer cores."""
    root = ["--allow-run-as-root"] if os.geteuid() == 0 else []
    return [LAUNCHER, *root, "--oversubscribe", "--bind-to", "none", "-np", str(ranks)]


def launcher_version() -> Optional[str]:
    """Returns Open MPI's version, or None if it is not installed."""
    if not shutil.which(LAUNCHER):
        return None
    text = subprocess.run([LAUNCHER, "--version"], capture_output=True, text=True, check=False).stdout
    return text.split("\n")[0].split()[-1] if text else None


class OpenMpi(Implementation):
    """MPI_Allreduce of Open MPI."""

    level = "C++"

    def __init__(self, name: str, title: str, parameters: List[str]) -> None:
        self.name, self.title, self._parameters = name, title, parameters

    def version(self) -> Optional[str]:
        return launcher_version() if (BUILT / "open_mpi").exists() else None

    def set_up(self) -> None:
        install.debian("openmpi-bin", "libopenmpi-dev")
        install.compile_peer("open_mpi", ["mpicxx.openmpi"], "mpi_sweep.cc")

    def job(self, ranks: int, options: WorkOptions, output: pathlib.Path) -> Job:
        program = [str(BUILT / "open_mpi"), *self.cpp_arguments(options, output)]
        return Job([*launch(ranks), *self._parameters, *program])

    def rank_of_hosts(self, options: WorkOptions, output: pathlib.Path) -> Optional[Job]:
        if self._parameters:
            return None
        return Job([str(BUILT / "open_mpi"), *self.cpp_arguments(options, output)])


IMPLEMENTATIONS = [
    OpenMpi("open_mpi", "Open MPI", []),
    OpenMpi("open_mpi_sm", "Open MPI, coll sm", ["--mca", "coll_sm_priority", "90"]),
]

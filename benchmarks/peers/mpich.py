"""MPICH from PyPI: MPI_Allreduce in C++.

It polls and never yields its core, so it is very slow with more ranks than cores.
"""

from __future__ import annotations

import pathlib
from typing import Optional

from workloads.options import WorkOptions

from peers import install
from peers.base import BUILT, Implementation, Job


class Mpich(Implementation):
    """MPI_Allreduce of MPICH."""

    name, title, level = "mpich", "MPICH", "C++"

    def version(self) -> Optional[str]:
        return install.package_version("mpich", "mpich") if (BUILT / "mpich").exists() else None

    def set_up(self) -> None:
        folder = install.venv("mpich", ["mpich>=4.3,<6"]).parent
        install.compile_peer(
            "mpich", [folder / "mpicxx"], "mpi_sweep.cc", [f"-Wl,-rpath,{folder.parent / 'lib'}"]
        )

    def job(self, ranks: int, options: WorkOptions, output: pathlib.Path) -> Job:
        mpiexec = install.venv_python("mpich").parent / "mpiexec"
        program = [str(BUILT / "mpich"), *self.cpp_arguments(options, output)]
        return Job([str(mpiexec), "-n", str(ranks), *program])


IMPLEMENTATIONS = [Mpich()]

"""A plain TCP stream between two hosts: what the link gives. It moves as many bytes, and sums nothing."""

from __future__ import annotations

import pathlib
from typing import Optional

from workloads.options import WorkOptions

from peers import install
from peers.base import BUILT, Implementation, Job
from peers.open_mpi import launcher_version


class Stream(Implementation):
    """An exchange of the bytes over TCP. Open MPI starts it."""

    name, title, level = "stream", "a plain stream", "C++"

    def version(self) -> Optional[str]:
        return launcher_version() and "built" if (BUILT / self.name).exists() else None

    def set_up(self) -> None:
        install.debian("openmpi-bin", "libopenmpi-dev")
        install.compile_peer(self.name, ["mpicxx.openmpi"], "stream_sweep.cc")

    def job(self, ranks: int, options: WorkOptions, output: pathlib.Path) -> Optional[Job]:
        return None

    def rank_of_hosts(self, options: WorkOptions, output: pathlib.Path) -> Optional[Job]:
        return Job([str(BUILT / self.name), *self.cpp_arguments(options, output)])


IMPLEMENTATIONS = [Stream()]

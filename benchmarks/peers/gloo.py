"""Debian's Gloo: its allreduce in C++. Between processes of a host it has TCP on the loopback interface."""

from __future__ import annotations

import pathlib
import subprocess
from typing import Optional

from workloads.options import WorkOptions

from peers import install
from peers.base import BUILT, Implementation, Job


class Gloo(Implementation):
    """gloo::allreduce."""

    name, title, level = "gloo", "Gloo", "C++"

    def version(self) -> Optional[str]:
        if not (BUILT / "gloo").exists():
            return None
        found = subprocess.run(
            ["dpkg-query", "-W", "-f", "${Version}", "libgloo0"], capture_output=True, text=True, check=False
        )
        return found.stdout.strip() or None

    def set_up(self) -> None:
        install.debian("libgloo-dev", "g++")
        install.compile_peer("gloo", ["g++"], "gloo_sweep.cc", ["-lgloo", "-lpthread"])

    def job(self, ranks: int, options: WorkOptions, output: pathlib.Path) -> Job:
        return Job([str(BUILT / "gloo"), f"--ranks={ranks}", *self.cpp_arguments(options, output)])


IMPLEMENTATIONS = [Gloo()]

"""Ours: the engine alone, in C++."""

from __future__ import annotations

import pathlib
import subprocess
import sys
from typing import Optional

from workloads.options import WorkOptions

from peers.base import ROOT, Implementation, Job

_PROGRAM = ROOT / ".cache" / "bench" / "engine_sweep"


class Engine(Implementation):
    """The engine alone."""

    name, title, level, ours = "engine", "tf_smddp, engine alone", "C++", True

    def version(self) -> Optional[str]:
        return "built" if _PROGRAM.exists() else None

    def set_up(self) -> None:
        """Builds it each time, since only Bazel knows whether it is up to date."""
        bazel = [sys.executable, str(ROOT / "tools" / "run_bazel.py")]
        target = "//benchmarks/cpp:engine_sweep"
        subprocess.run(
            [*bazel, "build", "--noshow_progress", "--ui_event_filters=-info", target], check=True, cwd=ROOT
        )
        _PROGRAM.parent.mkdir(parents=True, exist_ok=True)
        # A copy, because bazel-bin may point to another configuration later.
        built = ROOT / "bazel-bin" / "benchmarks" / "cpp" / "engine_sweep"
        _PROGRAM.unlink(missing_ok=True)
        _PROGRAM.write_bytes(built.read_bytes())
        _PROGRAM.chmod(0o755)

    def job(self, ranks: int, options: WorkOptions, output: pathlib.Path) -> Job:
        return Job([str(_PROGRAM), f"--ranks={ranks}", *self.cpp_arguments(options, output)])

    def rank_of_hosts(self, options: WorkOptions, output: pathlib.Path) -> Optional[Job]:
        return Job([str(_PROGRAM), "--ranks=0", *self.cpp_arguments(options, output)])


IMPLEMENTATIONS = [Engine()]

"""Implementation: a library or program that can allreduce, as run.py and setup_peers.py use it.

Each module of this package except this one, launch.py and install.py has a list IMPLEMENTATIONS. To add a
peer, add a module. A module of a Python implementation also has a function join(mode), which is called in
each rank and returns a workloads.contestant.Contestant. A module may import packages outside of the standard
library only in join().
"""

from __future__ import annotations

import abc
import dataclasses
import importlib
import pathlib
import pkgutil
from typing import Dict, List, Optional, Tuple

from workloads.options import WorkOptions

BENCHMARKS = pathlib.Path(__file__).resolve().parent.parent
ROOT = BENCHMARKS.parent
WORKER = BENCHMARKS / "worker.py"
BUILT = ROOT / ".cache" / "peers"  # the programs that the set-up compiles


@dataclasses.dataclass(frozen=True)
class Job:
    """A command that runs one job, and the variables that it needs besides this process's environment."""

    command: List[str]
    environment: Dict[str, str] = dataclasses.field(default_factory=dict)


class Implementation(abc.ABC):
    """A library or program that can allreduce."""

    name: str  # in files and on command lines
    title: str  # in tables
    level: str  # what is measured: "C++", "graph", "eager" or "torch"
    ours: bool = False

    @abc.abstractmethod
    def version(self) -> Optional[str]:
        """Returns the installed version, or None."""

    @abc.abstractmethod
    def set_up(self) -> None:
        """Installs it. If it is installed already, returns quickly and does nothing."""

    @abc.abstractmethod
    def job(self, ranks: int, options: WorkOptions, output: pathlib.Path) -> Optional[Job]:
        """Returns the command that measures `options` with `ranks` ranks, and writes lines to `output`.

        None if it cannot be measured on one host.
        """

    def rank_of_hosts(self, options: WorkOptions, output: pathlib.Path) -> Optional[Job]:
        """Returns the command of each rank of a job on several hosts, which Open MPI starts.

        None if it cannot be measured there.
        """
        return None

    def python_arguments(self, options: WorkOptions, output: pathlib.Path, mode: str = "") -> List[str]:
        """Returns the path of worker.py and its arguments."""
        module = type(self).__module__.rsplit(".", 1)[-1]
        line = [str(WORKER), module, f"--mode={mode}", *options.arguments(), f"--output={output}"]
        return [*line, f"--set={options.gradient_set}"] if options.gradient_set else line

    def cpp_arguments(self, options: WorkOptions, output: pathlib.Path) -> List[str]:
        """Returns the arguments of a C++ program. Writes the counts of a gradient set to a file for it."""
        line = [*options.arguments(), f"--output={output}"]
        if options.gradient_set:
            from workloads.options import read_shapes

            counts = output.with_suffix(".counts")
            counts.write_text("".join(f"{_product(shape)}\n" for shape in read_shapes(options.gradient_set)))
            line.append(f"--set={counts}")
        return line


def _product(shape: List[int]) -> int:
    count = 1
    for length in shape:
        count *= length
    return count


def implementations() -> Tuple[Implementation, ...]:
    """Returns all implementations, ours first, whether or not they are installed."""
    import peers

    found: List[Implementation] = []
    for module in sorted(info.name for info in pkgutil.iter_modules(peers.__path__)):
        found += getattr(importlib.import_module(f"peers.{module}"), "IMPLEMENTATIONS", [])
    return tuple(sorted(found, key=lambda one: not one.ours))

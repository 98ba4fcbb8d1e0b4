"""Implementation: something that can allreduce, as run.py and setup_peers.py see it.

Each module of this package but this one, launch.py and install.py has a list IMPLEMENTATIONS; to add a peer
is to add a module. Python implementations also have a function join(mode), which is called in each rank and
returns a workloads.contestant.Contestant; only there may a module import more than the standard library.
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
BUILT = ROOT / ".cache" / "peers"  # what the set-up compiles


@dataclasses.dataclass(frozen=True)
class Job:
    """A command that runs one job, and what its environment has besides this process's."""

    command: List[str]
    environment: Dict[str, str] = dataclasses.field(default_factory=dict)


class Implementation(abc.ABC):
    """Something that can allreduce."""

    name: str  # in files and on command lines
    title: str  # in tables
    level: str  # "C++", "graph", "eager" or "torch": what is measured
    ours: bool = False

    @abc.abstractmethod
    def version(self) -> Optional[str]:
        """Returns what is installed, or None when it is not."""

    @abc.abstractmethod
    def set_up(self) -> None:
        """Installs it; does nothing, quickly, when it is."""

    @abc.abstractmethod
    def job(self, ranks: int, options: WorkOptions, output: pathlib.Path) -> Job:
        """Returns the command that measures `options` with so many ranks; JSON lines go to `output`."""

    def python_arguments(self, options: WorkOptions, output: pathlib.Path, mode: str = "") -> List[str]:
        """Returns worker.py and its arguments."""
        module = type(self).__module__.rsplit(".", 1)[-1]
        line = [str(WORKER), module, f"--mode={mode}", *options.arguments(), f"--output={output}"]
        return [*line, f"--set={options.gradient_set}"] if options.gradient_set else line

    def cpp_arguments(self, options: WorkOptions, output: pathlib.Path) -> List[str]:
        """Returns the arguments of a C++ program, for which it writes the set's counts to a file."""
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
    """Returns all there are, ours first, installed or not."""
    import peers

    found: List[Implementation] = []
    for module in sorted(info.name for info in pkgutil.iter_modules(peers.__path__)):
        found += getattr(importlib.import_module(f"peers.{module}"), "IMPLEMENTATIONS", [])
    return tuple(sorted(found, key=lambda one: not one.ours))

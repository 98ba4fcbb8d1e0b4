"""WorkOptions: what one job measures. benchmarks/cpp/options.h has the same command line."""

from __future__ import annotations

import argparse
import dataclasses
import json
import pathlib
from typing import List, Sequence, Tuple

_GRADIENT_SETS = pathlib.Path(__file__).resolve().parent.parent / "gradient_sets"
ELEMENT_BYTES = 4  # float32


@dataclasses.dataclass(frozen=True)
class WorkOptions:
    """The work that one job measures: a sweep over sizes, or a gradient set."""

    sizes: Tuple[int, ...] = ()  # bytes of the sweep's tensors
    gradient_set: str = ""  # the name of a file in gradient_sets/
    blocks: int = 7  # samples for each figure
    block_seconds: float = 0.02  # a block repeats what it measures for that long
    in_place: bool = True  # for C++ only; TensorFlow decides by itself

    def arguments(self) -> List[str]:
        """Returns these options as a command line, except for the gradient set."""
        return [
            f"--sizes={','.join(map(str, self.sizes))}",
            f"--blocks={self.blocks}",
            f"--block-seconds={self.block_seconds}",
            f"--in-place={int(self.in_place)}",
        ]


def read_shapes(name: str) -> List[List[int]]:
    """Returns the shapes of a gradient set, in the order of the variables."""
    shapes: List[List[int]] = json.loads((_GRADIENT_SETS / f"{name}.json").read_text())["shapes"]
    return shapes


def gradient_sets() -> List[str]:
    """Returns the names of the gradient sets."""
    return sorted(path.stem for path in _GRADIENT_SETS.glob("*.json"))


def parse(arguments: Sequence[str]) -> Tuple[WorkOptions, argparse.Namespace]:
    """Reads a job's command line; the namespace has `output`, a file for JSON lines."""
    parser = argparse.ArgumentParser(description="One rank of a benchmark job.")
    parser.add_argument("implementation", help="a module in peers/")
    parser.add_argument("--mode", default="", help="one of the implementation's modes")
    parser.add_argument("--sizes", default="", help="bytes, separated by commas")
    parser.add_argument("--set", default="", help="the name of a gradient set")
    parser.add_argument("--blocks", type=int, default=WorkOptions.blocks)
    parser.add_argument("--block-seconds", type=float, default=WorkOptions.block_seconds)
    parser.add_argument("--in-place", type=int, default=1)
    parser.add_argument("--output", required=True, help="where rank 0 writes JSON lines")
    found = parser.parse_args(arguments)
    sizes = tuple(int(size) for size in found.sizes.split(",") if size)
    return (
        WorkOptions(sizes, found.set, found.blocks, found.block_seconds, bool(found.in_place)),
        found,
    )

"""Shared by the workers of `whole`: their command line, the blocks of steps, and what each rank writes.

Standard library only, since one worker has TensorFlow and the other has torch.
"""

from __future__ import annotations

import argparse
import json
import resource
import time
from typing import Callable, Sequence

WARM_UP_STEPS = 5
BLOCKS = 5


def parse_arguments(ways: Sequence[str]) -> argparse.Namespace:
    """Reads the command line of a worker; `ways` are the names of what joins the ranks."""
    parser = argparse.ArgumentParser(description="Train on synthetic batches, as fast as it goes.")
    parser.add_argument("way", choices=ways)
    parser.add_argument("--model", required=True)
    parser.add_argument("--batch-size", type=int, required=True, help="of one rank")
    parser.add_argument("--steps", type=int, required=True, help="in each block")
    parser.add_argument("--threads", type=int, required=True, help="that compute one op")
    parser.add_argument("--output", required=True, help="where each rank adds a line of JSON")
    return parser.parse_args()


def measure(
    train: Callable[[int], float], arguments: argparse.Namespace, rank: int, ranks: int, software: str
) -> None:
    """Trains in blocks of steps, and writes this rank's line.

    The line has "rank", "ranks", "software"; "seconds", those of a step in each block; and "voluntary" and
    "involuntary", the context switches of a step in all threads of this process. A thread makes a voluntary
    one when it has to wait, and an involuntary one when another thread gets its core.

    Args:
        train: trains so many steps, and returns the loss of the last one.
        arguments: those of parse_arguments().
        rank: this rank's number.
        ranks: the number of ranks that are joined.
        software: the framework and its version.
    """

    def block(steps: int) -> float:
        begin = time.perf_counter()
        loss = train(steps)
        if loss != loss:
            raise AssertionError("the loss is not a number (NaN)")
        return (time.perf_counter() - begin) / steps

    block(WARM_UP_STEPS)
    before = resource.getrusage(resource.RUSAGE_SELF)
    seconds = [block(arguments.steps) for _ in range(BLOCKS)]
    after = resource.getrusage(resource.RUSAGE_SELF)
    steps = BLOCKS * arguments.steps
    line = {
        "rank": rank,
        "ranks": ranks,
        "software": software,
        "seconds": seconds,
        "voluntary": (after.ru_nvcsw - before.ru_nvcsw) / steps,
        "involuntary": (after.ru_nivcsw - before.ru_nivcsw) / steps,
    }
    # One write at the end of the file, so that the lines of several ranks stay whole.
    with open(arguments.output, "a") as out:
        out.write(json.dumps(line) + "\n")

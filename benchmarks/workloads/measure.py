"""Measures a contestant: verifies, then alternates blocks of its trial, the baseline and memcpy.

The method is that of benchmarks/cpp/sweep.h. In addition there is a *baseline*, which makes the same tensors
but does not reduce them. The time of a reduction is that of a block minus that of the baseline's block after
it; the record has both as well.
"""

from __future__ import annotations

import json
import math
import time
from typing import Callable, Dict, List, TextIO

import numpy as np

from workloads.contestant import Contestant, Trial
from workloads.options import ELEMENT_BYTES, WorkOptions, read_shapes

_PERIOD = 251  # a prime: no two chunks of a tensor have the same content
_MAX_REPETITIONS = 10_000
_LONG_BLOCK_SECONDS = 0.5  # if a block takes longer, three blocks are enough


def run(contestant: Contestant, options: WorkOptions, out: TextIO) -> None:
    """Measures everything in `options`; rank 0 writes one line for each size or set. Collective."""
    for size_bytes in options.sizes:
        count = size_bytes // ELEMENT_BYTES
        record = _measure(contestant, contestant.sweep_trial(count), [[count]], options)
        _write(contestant, dict(record, work="sweep"), out)
    if options.gradient_set:
        shapes = read_shapes(options.gradient_set)
        record = _measure(contestant, contestant.set_trial(shapes), shapes, options)
        _write(contestant, dict(record, work=options.gradient_set), out)


def _write(contestant: Contestant, record: Dict, out: TextIO) -> None:
    if contestant.rank == 0:
        out.write(json.dumps(record) + "\n")
        out.flush()


def _measure(contestant: Contestant, trial: Trial, shapes: List[List[int]], options: WorkOptions) -> Dict:
    counts = [math.prod(shape) for shape in shapes]
    _verify(contestant, trial, shapes)
    source, target = np.ones(sum(counts), np.float32), np.zeros(sum(counts), np.float32)

    def copy() -> None:
        np.copyto(target, source)

    works: Dict[str, Callable[[], None]] = {"run": trial.run, "memcpy": copy}
    if trial.baseline:
        works["baseline"] = trial.baseline
    repetitions = {name: _repetitions(contestant, work, options) for name, work in works.items()}
    seconds: Dict[str, List[float]] = {name: [] for name in works}
    for number in range(options.blocks):
        for name, work in works.items():
            seconds[name].append(_block(contestant, work, repetitions[name]))
        # The times are equal on all ranks, so all ranks stop together.
        if number >= 2 and seconds["run"][-1] * repetitions["run"] > _LONG_BLOCK_SECONDS:
            break
    baseline = seconds.get("baseline", [0.0] * len(seconds["run"]))
    return {
        "bytes": sum(counts) * ELEMENT_BYTES,
        "tensors": len(counts),
        "ranks": contestant.size,
        "operations": trial.operations,
        "seconds": [(run - base) / trial.operations for run, base in zip(seconds["run"], baseline)],
        "run_seconds": seconds["run"],
        "baseline_seconds": baseline,
        "memcpy_seconds": seconds["memcpy"],
    }


def _block(contestant: Contestant, work: Callable[[], None], repetitions: int) -> float:
    """Returns the time of one repetition on the slowest rank, when all ranks begin together."""
    contestant.barrier()
    begin = time.perf_counter()
    for _ in range(repetitions):
        work()
    return contestant.slowest(time.perf_counter() - begin) / repetitions


def _repetitions(contestant: Contestant, work: Callable[[], None], options: WorkOptions) -> int:
    work()  # traces the function and touches the memory
    work()
    count = 1
    while True:
        seconds = _block(contestant, work, count) * count  # equal on all ranks
        if seconds >= options.block_seconds or count >= _MAX_REPETITIONS:
            return count
        growth = min(max(1.2 * options.block_seconds / seconds, 1.5), 10.0)
        count = min(int(count * growth) + 1, _MAX_REPETITIONS)


def _verify(contestant: Contestant, trial: Trial, shapes: List[List[int]]) -> None:
    """Raises an AssertionError unless the sum of small integers is exact in every element. Collective."""
    period = np.arange(_PERIOD, dtype=np.float32)
    patterns = [
        np.resize(np.roll(period, index), math.prod(shape)).reshape(shape)
        for index, shape in enumerate(shapes)
    ]
    size, rank = contestant.size, contestant.rank
    found = trial.reduce([pattern + np.float32(rank) for pattern in patterns])
    for index, (pattern, result) in enumerate(zip(patterns, found)):
        wanted = pattern * np.float32(size) + np.float32(size * (size - 1) // 2)
        if not np.array_equal(result, wanted):
            wrong = int((np.asarray(result) != wanted).sum())
            raise AssertionError(
                f"rank {rank}: {wrong} of {wanted.size} elements of tensor {index} are wrong: "
                f"{np.asarray(result).ravel()[:4]} … instead of {wanted.ravel()[:4]} …"
            )

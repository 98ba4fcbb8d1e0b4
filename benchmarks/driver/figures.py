"""Computes the figures of the tables from records: medians, and ratios of pairs. No I/O."""

from __future__ import annotations

import statistics
from typing import Dict, Iterable, List, NamedTuple, Optional, Tuple

Record = Dict


class Figure(NamedTuple):
    """The times of one implementation for one size in one suite."""

    seconds: float  # the median of the jobs' medians
    low: float  # the lowest of the jobs' medians
    high: float  # the highest of the jobs' medians
    memcpy_ratio: float  # the median of: time of the memcpys in the same job / time of the reductions
    ours_ratio: Optional[float]  # a peer's: the median of its time / our time in the job before it


def job_seconds(record: Record) -> float:
    """Returns the median of a job's blocks, but at least 1 ns, because a difference may be negative."""
    return max(1e-9, statistics.median(record["seconds"]))


def figures(records: Iterable[Record]) -> Dict[Tuple[str, int], Figure]:
    """Returns the figures of a suite's records by implementation and size in bytes."""
    jobs: Dict[Tuple[str, int], List[Record]] = {}
    ours: Dict[Tuple[str, int], Record] = {}
    for record in records:
        if "seconds" in record:
            jobs.setdefault((record["implementation"], record["bytes"]), []).append(record)
            if record["ours"]:
                ours[record["pair"], record["bytes"]] = record
    return {key: _figure(group, ours) for key, group in jobs.items()}


def _figure(group: List[Record], ours: Dict[Tuple[str, int], Record]) -> Figure:
    seconds = [job_seconds(record) for record in group]
    ratios = [
        job_seconds(record) / job_seconds(ours[record["pair"], record["bytes"]])
        for record in group
        if not record["ours"] and (record["pair"], record["bytes"]) in ours
    ]
    copies = [statistics.median(record["memcpy_seconds"]) / job_seconds(record) for record in group]
    return Figure(
        statistics.median(seconds),
        min(seconds),
        max(seconds),
        statistics.median(copies),
        statistics.median(ratios) if ratios else None,
    )


def size_text(size_bytes: int) -> str:
    """Returns a text such as 4 B, 64 KiB or 25 MiB, or decimal megabytes if it is no multiple of 1 MiB."""
    mib, kib = 1 << 20, 1 << 10
    if size_bytes >= mib:
        return f"{size_bytes / 1e6:.1f} MB" if size_bytes % mib else f"{size_bytes // mib} MiB"
    return f"{size_bytes} B" if size_bytes < kib or size_bytes % kib else f"{size_bytes // kib} KiB"


def time_text(seconds: float) -> str:
    """Returns a time with three digits and a unit."""
    for unit, name in ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs")):
        if seconds >= unit:
            return f"{seconds / unit:.3g} {name}"
    return f"{seconds * 1e9:.0f} ns"

"""From records to figures: medians, and ratios of pairs. No I/O."""

from __future__ import annotations

import statistics
from typing import Dict, Iterable, List, NamedTuple, Optional, Tuple

Record = Dict


class Figure(NamedTuple):
    """What one implementation needs for one size, in one suite."""

    seconds: float  # the median over jobs of the job's median
    low: float  # of the jobs' medians
    high: float
    memcpy_ratio: float  # how many times as fast as the memcpys beside it; the median
    ours_ratio: Optional[float]  # how many times longer it needs than ours in the job before; a peer's


def job_seconds(record: Record) -> float:
    """The figure of one job: the median of its blocks. At least 1 ns: a difference may be negative."""
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
    """4 B, 64 KiB, 25 MiB; decimal where it is no multiple."""
    mib, kib = 1 << 20, 1 << 10
    if size_bytes >= mib:
        return f"{size_bytes / 1e6:.1f} MB" if size_bytes % mib else f"{size_bytes // mib} MiB"
    return f"{size_bytes} B" if size_bytes < kib or size_bytes % kib else f"{size_bytes // kib} KiB"


def time_text(seconds: float) -> str:
    """Three digits and a unit."""
    for unit, name in ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs")):
        if seconds >= unit:
            return f"{seconds / unit:.3g} {name}"
    return f"{seconds * 1e9:.0f} ns"

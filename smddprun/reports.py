"""Puts together what the ranks of a job have written: one timeline, and one table of figures."""

from __future__ import annotations

import json
import pathlib
import statistics
import tempfile
from collections.abc import Sequence
from typing import Any

TIMELINE = "SMDDP_TIMELINE"  # the ranks' variables
SUMMARY = "SMDDP_SUMMARY"

# A rank that waits for less than this part of what the others wait for, is one that they wait for.
_LATE = 0.5
# Below this part of the time of the job, waiting is not worth a word.
_WORTH_A_WORD = 0.05


def of_rank(file: pathlib.Path, rank: int) -> pathlib.Path:
    """Returns the name of a rank's file, as `tf_smddp.start_profiler` makes it."""
    return file.with_name(f"{file.stem}.rank{rank}{file.suffix}")


class Reports:
    """The reports that a job was asked for."""

    def __init__(self, timeline: str | None, summary: bool):
        """Makes a folder for the figures if they are wanted.

        Args:
          timeline: the path of the timeline of all ranks, or None.
          summary: whether figures are wanted.

        Raises:
          OSError: if there can be no such folder.
        """
        self._timeline = None if timeline is None else pathlib.Path(timeline).absolute()
        self._folder = tempfile.TemporaryDirectory(prefix="smddprun-") if summary else None

    def environ(self) -> dict[str, str]:
        """Returns the variables by which ranks know of them."""
        found = {} if self._timeline is None else {TIMELINE: str(self._timeline)}
        if self._folder is not None:
            found[SUMMARY] = str(self._figures())
        return found

    def finish(self, num_ranks: int) -> list[str]:
        """Writes the timeline and returns the lines of the table, when all ranks have ended."""
        lines = []
        if self._timeline is not None:
            lines += _merge(self._timeline, num_ranks)
        if self._folder is not None:
            with self._folder:
                lines += table([_figures_of(of_rank(self._figures(), rank)) for rank in range(num_ranks)])
        return lines

    def _figures(self) -> pathlib.Path:
        assert self._folder is not None
        return pathlib.Path(self._folder.name) / "figures.json"


def _merge(file: pathlib.Path, num_ranks: int) -> list[str]:
    """Joins the ranks' traces into `file` and removes them; returns what there is to say of it."""
    events: list[Any] = []
    missing = []
    for rank in range(num_ranks):
        part = of_rank(file, rank)
        try:
            events += _events(part.read_text(encoding="utf-8"))
            part.unlink()
        except OSError:
            missing.append(str(rank))
    try:
        with open(file, "w", encoding="utf-8") as out:
            json.dump(events, out)
    except OSError as error:
        return [f"the timeline {str(file)!r} cannot be written: {error.strerror}"]
    absent = f"; there is nothing of rank {', '.join(missing)}" if missing else ""
    return [f"timeline: {file}, for https://ui.perfetto.dev{absent}"]


def _events(text: str) -> list[Any]:
    """Returns the events of a trace. That of a rank that was killed has no end, or half an event there."""
    for end in ("", "]"):
        try:
            found: list[Any] = json.loads(text + end)
            return found
        except ValueError:
            continue
    whole = text.rfind("},\n")
    return [] if whole < 0 else _events(text[: whole + 1])


def _figures_of(file: pathlib.Path) -> dict[str, Any] | None:
    try:
        found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        return found
    except (OSError, ValueError):
        return None  # it was killed, or has not called init()


def table(figures: Sequence[dict[str, Any] | None]) -> list[str]:
    """Returns the lines of the table of all ranks.

    Args:
      figures: what each rank has written; None for one that has written nothing.
    """
    lines = [
        "rank   seconds  steps/s   last      blocked  collectives      sent  waiting  moving  staged  "
        "peak memory"
    ]
    waits, worlds = {}, {}
    for rank, of in enumerate(figures):
        if of is None:
            lines.append(f"{rank:4}   no figures: it did not reach tf_smddp.shutdown()")
            continue
        total = {name: sum(kind[name] for kind in of["collectives"].values()) for name in _SUMMED}
        waits[rank] = total["waiting_seconds"]
        staged = total["staged_bytes"] / total["bytes"] if total["bytes"] else 0.0
        world = worlds[rank] = of["process_sets"][0]
        rate = f"{1 / world['step_seconds']:.1f}" if world["step_seconds"] else "-"
        blocked = sum(each["blocked_seconds"] for each in of["process_sets"])
        share = blocked / of["seconds"] if of["seconds"] else 0.0
        lines.append(
            f"{rank:4}  {of['seconds']:8.1f}  {rate:>7}  {world['last_steps']:5}  "
            f"{blocked:5.1f} s {share:3.0%}  {total['calls']:11}  {_size(total['bytes']):>8}  "
            f"{total['waiting_seconds']:5.1f} s  {total['moving_seconds']:4.1f} s  {staged:5.0%}  "
            f"{_size(of['peak_memory_bytes']):>11}"
        )
    seconds = max((of["seconds"] for of in figures if of is not None), default=0.0)
    return lines + _of_the_latest(waits, worlds, seconds)


_SUMMED = ("calls", "bytes", "staged_bytes", "waiting_seconds", "moving_seconds")


def _of_the_latest(waits: dict[int, float], worlds: dict[int, Any], seconds: float) -> list[str]:
    """Names the rank for which the others wait, if there is one."""
    if len(waits) < 2:
        return []
    rank = min(waits, key=lambda each: waits[each])
    others = statistics.mean(wait for each, wait in waits.items() if each != rank)
    if waits[rank] >= _LATE * others or others < _WORTH_A_WORD * seconds:
        return []
    last, steps = worlds[rank]["last_steps"], worlds[rank]["steps"]
    how_often = f", in {last} of {steps} steps" if steps else ""
    return [
        f"rank {rank} is the last to arrive{how_often}: it has waited {waits[rank]:.1f} s, the others "
        f"{others:.1f} s on average, summed over all collectives"
    ]


def _size(count: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" or count >= 100 else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"

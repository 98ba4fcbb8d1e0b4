"""Training scaling: compares one rank to N ranks, each with one thread, and splits up the loss.

Each round has two jobs with the same model and the same batch per rank: one rank *alone*; and N ranks, whose
steps alternate between blocks without reductions (*apart*), with an allreduce of one number after the
backward pass (*in step*), and with the gradients' reductions (*together*). Figures are medians over steps.
The time by which together is longer than alone is the sum of

    sharing         apart − alone: caches, memory and clock that the ranks share
    waiting         in step − apart: what it takes that no rank updates its weights before all have gradients
    communication   together − in step: the part of moving and reducing the gradients that nothing hides

These are differences of medians, so one may be negative on a machine that does other work.
"""

from __future__ import annotations

import os
import pathlib
import statistics
from typing import Callable, Dict, List, Sequence

from driver.figures import time_text
from driver.tables import markdown

from training.jobs import Size, train

Record = Dict
SIZES = {"digits": Size(32, 200), "resnet50": Size(4, 15)}
QUICK_SIZES = {"digits": Size(8, 3)}
JOBS = ("alone", "together")


def run(folder: pathlib.Path, rounds: int, quick: bool, progress: Callable[[str], None]) -> List[Record]:
    """Returns a record for each job: "scaling" (the model), "job", "ranks", "seconds" (of a step)."""
    ranks = max(2, min(8, len(os.sched_getaffinity(0))))
    records: List[Record] = []
    for model, size in (QUICK_SIZES if quick else SIZES).items():
        for _ in range(rounds):
            for job in JOBS:
                progress(f"training scaling, {model}: {job}")
                output = folder / f"scaling-{model}-{job}.jsonl"
                num_ranks = 1 if job == "alone" else ranks
                outcome = train(model, size, output, num_ranks, reduce=job == "together", threads=1)
                record: Record = {"scaling": model, "job": job, "ranks": num_ranks}
                if outcome.error or not outcome.records:
                    about = {"title": f"scaling {model}, {job}", "error": outcome.error, "ours": True}
                    records.append({**record, **about})
                    continue
                records.append({**record, **_figures(outcome.records[0])})
    return records


def _figures(found: Record) -> Record:
    apart: List[List[float]] = found["apart"]
    steps, allreduce = len(apart[0]), found["allreduce"]
    return {
        "apart_seconds": _median_of_all(apart),
        "in_step_seconds": _median_of_all(found.get("in_step", apart)),
        "seconds": _median_of_all(found.get("together", apart)),
        "moving_seconds": allreduce["moving_seconds"] / steps,
        "bytes": allreduce["bytes"] / steps,
        "staged_bytes": allreduce["staged_bytes"] / steps,
        "in_place_bytes": allreduce.get("in_place_bytes", 0) / steps,
    }


def _median_of_all(by_rank: List[List[float]]) -> float:
    return statistics.median(seconds for one in by_rank for seconds in one)


def text(records: Sequence[Record]) -> str:
    """Returns the table, or an empty string if nothing of this was measured."""
    own = [record for record in records if "scaling" in record and "seconds" in record]
    rows = []
    for model in dict.fromkeys(record["scaling"] for record in own):

        def median(job: str, field: str, model: str = model) -> float:
            values = [r[field] for r in own if r["scaling"] == model and r["job"] == job]
            return statistics.median(values) if values else float("nan")

        alone, together = median("alone", "seconds"), median("together", "seconds")
        apart, in_step = median("together", "apart_seconds"), median("together", "in_step_seconds")
        moved = median("together", "bytes")
        shares = [median("together", f"{how}_bytes") / moved for how in ("staged", "in_place") if moved]
        parts = [apart - alone, in_step - apart, together - in_step]
        rows.append(
            [
                f"{model}, {max(r['ranks'] for r in own if r['scaling'] == model)} ranks",
                time_text(alone),
                time_text(together),
                f"{alone / together:.1%}",
                *(f"{part / together:.1%}" for part in parts),
                time_text(median("together", "moving_seconds")),
                *(f"{share:.0%}" for share in shares),
            ]
        )
    if not rows:
        return ""
    head = [
        *("model", "one rank", "N ranks", "efficiency", "lost: sharing", "waiting"),
        *("communication", "moving bytes, by rank", "staged", "in place"),
    ]
    return "### Training scaling, one thread for each rank\n\n" + markdown(head, rows)

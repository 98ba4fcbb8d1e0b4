"""Whole training: images a second with all cores of the machine, by what a user would choose between.

One process that uses all cores, and a rank for each core with one thread each, joined by tf_smddp, by Horovod
over MPI or by MultiWorkerMirroredStrategy. All train the same model with the same number of images in a step
of all ranks together. The jobs take turns, so that other work on the machine disturbs all alike; a figure is
the median over the blocks of steps of all jobs.

On several hosts, which are on this machine, too, there is no way with one process.
"""

from __future__ import annotations

import os
import pathlib
import statistics
import sys
from typing import Callable, Dict, List, Optional, Sequence

from driver.figures import time_text
from driver.hosts import Layout
from driver.jobs import Outcome, run_job
from driver.tables import markdown
from peers import install, open_mpi
from peers.base import BENCHMARKS, Implementation, Job
from peers.horovod import SHORT_CYCLE_MS
from peers.plugin import PYTHON

from training.jobs import LIMIT_SECONDS, Size

Record = Dict
# The images of one rank in a step, and the steps of a block.
SIZES = {
    "digits": Size(32, 100),
    "mlp": Size(64, 30),
    "encoder": Size(16, 8),
    "embedding": Size(256, 30),
    "resnet50": Size(4, 5),
}
QUICK_SIZES = {"digits": Size(8, 2), "embedding": Size(8, 2)}
ALONE, OURS, OURS_ROWS = "one process", "tf_smddp", "tf_smddp, sparse_as_dense=False"
SPARSE = {"embedding"}  # models with sparse gradients
# The peers by which the ways are named in the table, and what whole_worker.py calls them.
PEERS = {"horovod_mpi": "horovod", "multi_worker_mirrored": "multi_worker_mirrored"}


def run(
    folder: pathlib.Path,
    rounds: int,
    quick: bool,
    progress: Callable[[str], None],
    peers: Sequence[Implementation],
    layout: Optional[Layout] = None,
) -> List[Record]:
    """Returns a record for each job: "whole" (the model), "where", "way", "images" and "seconds" (of a step).

    Args:
        folder: where the jobs' logs and results are written.
        rounds: how often each way runs.
        quick: few steps of few models, to check that everything works.
        progress: called with a line of text before each job.
        peers: the installed peers.
        layout: the hosts; None is one, with a rank for each core.
    """
    ranks = sum(layout.counts) if layout else max(2, min(8, len(os.sched_getaffinity(0))))
    where = layout.title if layout else f"one host with {ranks} ranks"
    ways = {} if layout else {ALONE: "alone"}
    ways.update({OURS: OURS, OURS_ROWS: "tf_smddp_rows"})
    ways.update({peer.title: PEERS[peer.name] for peer in peers if peer.name in PEERS})
    records: List[Record] = []
    for model, size in (QUICK_SIZES if quick else SIZES).items():
        for _ in range(rounds):
            for title, way in ways.items():
                if title == OURS_ROWS and model not in SPARSE:
                    continue
                progress(f"whole training, {where}, {model}: {title}")
                output = folder / f"whole-{model}-{way}.jsonl"
                outcome = _run(way, model, size, ranks, layout, output)
                images = size.batch_size * ranks
                record: Record = {"whole": model, "where": where, "way": title, "images": images}
                if outcome.error or not outcome.records:
                    name, ours = f"whole {model}, {title}", title.startswith(OURS)
                    records.append({**record, "title": name, "error": outcome.error, "ours": ours})
                    continue
                records.append({**record, "seconds": outcome.records[0]["seconds"]})
    return records


def _run(
    way: str, model: str, size: Size, ranks: int, layout: Optional[Layout], output: pathlib.Path
) -> Outcome:
    log = output.with_suffix(".log")
    rank = _rank(way, model, size, ranks, output)
    if layout is not None:
        with layout.hosts() as hosts:
            return run_job(layout.job(hosts, rank), output, LIMIT_SECONDS, log)
    launch: List[str] = []
    if way.startswith(OURS):
        launch = [PYTHON, "-m", "smddprun", "-np", str(ranks), "--no-tag-output"]
    elif way == "horovod":
        launch = open_mpi.launch(ranks)
    elif way == "multi_worker_mirrored":
        launch = [sys.executable, str(BENCHMARKS / "peers" / "launch.py"), str(ranks)]
    return run_job(Job([*launch, *rank.command], rank.environment), output, LIMIT_SECONDS, log)


def _rank(way: str, model: str, size: Size, ranks: int, output: pathlib.Path) -> Job:
    """The command of each rank."""
    batch, threads = (size.batch_size * ranks, ranks) if way == "alone" else (size.batch_size, 1)
    worker = [str(BENCHMARKS / "whole_worker.py"), way, f"--model={model}", f"--output={output}"]
    worker += [f"--batch-size={batch}", f"--steps={size.steps}", f"--threads={threads}"]
    if way == "horovod":
        return Job([str(install.venv_python("horovod")), *worker], {"HOROVOD_CYCLE_TIME": SHORT_CYCLE_MS})
    if way == "multi_worker_mirrored":
        return Job([str(install.venv_python("tensorflow")), *worker])
    return Job([PYTHON, *worker])


def text(records: Sequence[Record]) -> str:
    """Returns a table for each layout, or an empty string if nothing of this was measured."""
    own = [record for record in records if "whole" in record and "seconds" in record]
    tables = []
    for where in dict.fromkeys(record["where"] for record in own):
        title = f"### Whole training, {where}: images a second, and the time of a step\n\n"
        tables.append(title + _table([record for record in own if record["where"] == where]))
    return "\n\n".join(tables)


def _table(records: Sequence[Record]) -> str:
    ways = list(dict.fromkeys(record["way"] for record in records))
    rows = []
    for model in dict.fromkeys(record["whole"] for record in records):
        of_model = [record for record in records if record["whole"] == model]
        seconds = {way: [s for r in of_model if r["way"] == way for s in r["seconds"]] for way in ways}
        images = of_model[0]["images"]
        ours = seconds.get(OURS)
        row = [f"{model}, {images} images a step"]
        for way in ways:
            if not seconds[way]:
                row.append("–")
                continue
            median = statistics.median(seconds[way])
            ratio = f" ({median / statistics.median(ours):.2f}×)" if ours and way != OURS else ""
            row.append(f"{images / median:,.0f}/s, {time_text(median)}{ratio}")
        rows.append(row)
    return markdown(["model", *ways], rows)

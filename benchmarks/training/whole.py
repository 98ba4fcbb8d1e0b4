"""Whole training: images a second with all cores of the machine, by what a user would choose between.

One process that uses all cores, and a rank for each core with one thread each, joined by tf_smddp, by Horovod
over MPI or by MultiWorkerMirroredStrategy. All train the same model with the same number of images in a step
of all ranks together. The jobs take turns, so that other work on the machine disturbs all alike; a figure is
the median over the blocks of steps of all jobs.
"""

from __future__ import annotations

import os
import pathlib
import statistics
import sys
from typing import Callable, Dict, List, Sequence

from driver.figures import time_text
from driver.jobs import run_job
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
) -> List[Record]:
    """Returns a record for each job: "whole" (the model), "way", "images" and "seconds" (of a step)."""
    cores = max(2, min(8, len(os.sched_getaffinity(0))))
    ways = {ALONE: "alone", OURS: OURS, OURS_ROWS: "tf_smddp_rows"}
    ways.update({peer.title: PEERS[peer.name] for peer in peers if peer.name in PEERS})
    records: List[Record] = []
    for model, size in (QUICK_SIZES if quick else SIZES).items():
        for _ in range(rounds):
            for title, way in ways.items():
                if title == OURS_ROWS and model not in SPARSE:
                    continue
                progress(f"whole training, {model}: {title}")
                output = folder / f"whole-{model}-{way}.jsonl"
                outcome = run_job(
                    _job(way, model, size, cores, output), output, LIMIT_SECONDS, output.with_suffix(".log")
                )
                record: Record = {"whole": model, "way": title, "images": size.batch_size * cores}
                if outcome.error or not outcome.records:
                    name, ours = f"whole {model}, {title}", title.startswith(OURS)
                    records.append({**record, "title": name, "error": outcome.error, "ours": ours})
                    continue
                records.append({**record, "seconds": outcome.records[0]["seconds"]})
    return records


def _job(way: str, model: str, size: Size, cores: int, output: pathlib.Path) -> Job:
    ranks, threads = (1, cores) if way == "alone" else (cores, 1)
    worker = [str(BENCHMARKS / "whole_worker.py"), way, f"--model={model}", f"--output={output}"]
    worker += [f"--batch-size={size.batch_size * cores // ranks}", f"--steps={size.steps}"]
    worker += [f"--threads={threads}"]
    if way == "alone":
        return Job([PYTHON, *worker])
    if way.startswith(OURS):
        return Job([PYTHON, "-m", "smddprun", "-np", str(ranks), "--no-tag-output", PYTHON, *worker])
    if way == "horovod":
        command = [*open_mpi.launch(ranks), str(install.venv_python("horovod")), *worker]
        return Job(command, {"HOROVOD_CYCLE_TIME": SHORT_CYCLE_MS})
    launch = [sys.executable, str(BENCHMARKS / "peers" / "launch.py"), str(ranks)]
    return Job([*launch, str(install.venv_python("tensorflow")), *worker])


def text(records: Sequence[Record]) -> str:
    """Returns the table, or an empty string if nothing of this was measured."""
    own = [record for record in records if "whole" in record and "seconds" in record]
    ways = list(dict.fromkeys(record["way"] for record in own))
    rows = []
    for model in dict.fromkeys(record["whole"] for record in own):
        of_model = [record for record in own if record["whole"] == model]
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
    if not rows:
        return ""
    title = "### Whole training with all cores: images a second, and the time of a step\n\n"
    return title + markdown(["model", *ways], rows)

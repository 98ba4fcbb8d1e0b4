"""Whole training: images a second with all cores of the machine, by what a user would choose between.

One process that uses all cores, and a rank for each core with one thread each, joined by tf_smddp, by Horovod
over MPI, by MultiWorkerMirroredStrategy or by DistributedDataParallel of torch. torch is another
framework, whose layers have other speeds: so it is measured with one process, too, and a table compares the
ranks with one process of the same framework.

All train the same model with the same number of images in a step of all ranks together. The jobs take turns,
so that other work on the machine disturbs all alike; a figure is the median over the blocks of steps of all
jobs. They may be measured beside a busy loop, which is such other work.

On several hosts, which are on this machine, too, there is no way with one process.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import pathlib
import statistics
import sys
from typing import Callable, Dict, List, Optional, Sequence

from driver.busy import busy_loop
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
SPARSE = {"embedding"}  # models with sparse gradients
BUSY = ", beside a busy loop"
LAUNCH = [sys.executable, str(BENCHMARKS / "peers" / "launch.py")]


@dataclasses.dataclass(frozen=True)
class Way:
    """A way to train: a row of the tables."""

    title: str
    name: str  # what the worker calls it
    framework: str = "TensorFlow"
    peer: str = ""  # the implementation that must be installed; "" is ours
    sparse: bool = False  # whether it is of use for models with sparse gradients only
    joins: bool = True  # whether it joins ranks; else it is one process that uses all cores


ONE, OURS = "one process", "tf_smddp"
WAYS = (
    Way(ONE, "alone", joins=False),
    Way(OURS, "tf_smddp"),
    Way("tf_smddp, `sparse_as_dense=False`", "tf_smddp_rows", sparse=True),
    Way("tf_smddp, `Strategy`", "tf_smddp_strategy"),
    Way("Horovod, MPI", "horovod", peer="horovod_mpi"),
    Way("MultiWorkerMirroredStrategy", "multi_worker_mirrored", peer="multi_worker_mirrored"),
    Way("torch, one process", "torch_alone", "torch", "torch_gloo", joins=False),
    Way("torch DDP, Gloo", "torch_ddp", "torch", "torch_gloo"),
    Way("torch DDP, smddp", "torch_ddp_smddp", "torch", "torch_smddp"),
    Way("torch_smddp's DDP", "torch_smddp", "torch", "torch_smddp"),
    Way("torch, one process, `sparse=True`", "torch_alone_sparse", "torch", "torch_gloo", True, joins=False),
    Way("torch DDP, Gloo, `sparse=True`", "torch_ddp_sparse", "torch", "torch_gloo", True),
)


def sizes(quick: bool) -> Dict[str, Size]:
    """Returns how much is trained of each model; `quick` is few steps of few models."""
    return QUICK_SIZES if quick else SIZES


def run(
    folder: pathlib.Path,
    rounds: int,
    quick: bool,
    progress: Callable[[str], None],
    peers: Sequence[Implementation],
    model: str,
    layout: Optional[Layout] = None,
    busy: bool = False,
) -> List[Record]:
    """Returns a record for each job: see _figures(); and "whole" (the model), "where", "way" and "images".

    Args:
        folder: where the jobs' logs and results are written.
        rounds: how often each way runs.
        quick: few steps, to check that everything works.
        progress: called with a line of text before each job.
        peers: the installed peers.
        model: its name, which is in sizes().
        layout: the hosts; None is one, with a rank for each core.
        busy: whether another process keeps a core busy during each job.
    """
    ranks = sum(layout.counts) if layout else max(2, min(8, len(os.sched_getaffinity(0))))
    where = (layout.title if layout else f"one host with {ranks} ranks") + (BUSY if busy else "")
    installed = {"", *(peer.name for peer in peers)}
    ways = [way for way in WAYS if way.peer in installed and not (layout and _one_host(way))]
    size = sizes(quick)[model]
    records: List[Record] = []
    for _ in range(rounds):
        for way in ways:
            if way.sparse and model not in SPARSE:
                continue
            progress(f"whole training, {where}, {model}: {way.title}")
            output = folder / f"whole-{model}-{way.name}.jsonl"
            with busy_loop() if busy else contextlib.nullcontext():
                outcome = _run(way, model, size, ranks, layout, output)
            images = size.batch_size * ranks
            record: Record = {"whole": model, "where": where, "way": way.title, "images": images}
            error = outcome.error or _missing(outcome.records, ranks if way.joins else 1)
            if error:
                progress(f"{model}: {way.title}: {error}; its log is in {folder}")
                name = f"whole {model}, {way.title}"
                records.append({**record, "title": name, "error": error, "ours": not way.peer})
            else:
                records.append({**record, **_figures(outcome.records)})
    return records


def _one_host(way: Way) -> bool:
    """Whether a way is measured on one host only: one process, and torch, which `hosts` leaves out, too."""
    return not way.joins or way.framework == "torch"


def _missing(lines: Sequence[Record], ranks: int) -> str:
    """Returns an error unless each rank of a job has written its line, and all were joined; else ""."""
    found = sorted((line["rank"], line["ranks"]) for line in lines)
    wanted = [(rank, ranks) for rank in range(ranks)]
    return "" if found == wanted else f"the lines are of (rank, ranks) {found}, and should be of {wanted}"


def _figures(lines: Sequence[Record]) -> Record:
    """Returns what a job's lines say.

    "seconds" are those of a step in each block, on rank 0; "voluntary" and "involuntary" the context switches
    of a step, in all ranks together; "software" is the framework and its version.
    """
    first = min(lines, key=lambda line: line["rank"])
    switches = {kind: sum(line[kind] for line in lines) for kind in ("voluntary", "involuntary")}
    return {"seconds": first["seconds"], "software": first["software"], **switches}


def _run(
    way: Way, model: str, size: Size, ranks: int, layout: Optional[Layout], output: pathlib.Path
) -> Outcome:
    log = output.with_suffix(".log")
    rank = _rank(way, model, size, ranks, output)
    if layout is not None:
        with layout.hosts() as hosts:
            return run_job(layout.job(hosts, rank), output, LIMIT_SECONDS, log)
    launch: List[str] = []
    if way.joins and not way.peer:
        launch = [PYTHON, "-m", "smddprun", "-np", str(ranks), "--no-tag-output"]
    elif way.peer == "horovod_mpi":
        launch = open_mpi.launch(ranks)
    elif way.joins:
        launch = [*LAUNCH, str(ranks)]
    return run_job(Job([*launch, *rank.command], rank.environment), output, LIMIT_SECONDS, log)


def _rank(way: Way, model: str, size: Size, ranks: int, output: pathlib.Path) -> Job:
    """The command of each rank."""
    batch, threads = (size.batch_size, 1) if way.joins else (size.batch_size * ranks, ranks)
    program = "whole_torch_worker.py" if way.framework == "torch" else "whole_worker.py"
    worker = [str(BENCHMARKS / program), way.name, f"--model={model}", f"--output={output}"]
    worker += [f"--batch-size={batch}", f"--steps={size.steps}", f"--threads={threads}"]
    if way.peer == "horovod_mpi":
        return Job([str(install.venv_python("horovod")), *worker], {"HOROVOD_CYCLE_TIME": SHORT_CYCLE_MS})
    if way.peer:
        environment = "torch" if way.framework == "torch" else "tensorflow"
        return Job([str(install.venv_python(environment)), *worker])
    return Job([PYTHON, *worker])


def text(records: Sequence[Record]) -> str:
    """Returns the tables of each layout, or an empty string if nothing of this was measured."""
    own = [record for record in records if "whole" in record]
    measured = [record for record in own if "seconds" in record]
    parts = []
    for where in dict.fromkeys(record["where"] for record in measured):
        here = [record for record in measured if record["where"] == where]
        parts += _tables(here, where)
        undisturbed = [r for r in measured if r["where"] + BUSY == where]
        if undisturbed:
            title = "How many times as long a step takes beside the busy loop as without it"
            parts.append(f"{title}:\n\n{_ratios(here, undisturbed, lambda way: way.title)}")
        failed = {f"{r['title']}: {r['error']}" for r in own if "error" in r and r["where"] == where}
        parts += [f"Failed: {'; '.join(sorted(failed))}."] if failed else []
    return "\n\n".join(parts)


def software(records: Sequence[Record]) -> str:
    """Returns the frameworks that took part, with their versions."""
    return ", ".join(sorted({record["software"] for record in records if "software" in record}))


def _tables(here: Sequence[Record], where: str) -> List[str]:
    """The tables of one layout, each with its title."""
    title = "Images or texts a second, the time of a step, and in brackets that time divided by tf_smddp's"
    parts = [f"### Whole training, {where}", f"{title}:\n\n{_times(here)}"]
    one_process = {way.title for way in WAYS if not way.joins}
    alone = [record for record in here if record["way"] in one_process]
    joined = [record for record in here if record["way"] not in one_process]
    if alone and joined:
        title = "The time of a step of the ranks, divided by that of one process of the same framework"
        parts.append(f"{title}:\n\n{_ratios(joined, alone, _one_process)}")
    title = "Context switches of a step, in all ranks together, voluntary + involuntary"
    parts.append(f"{title}:\n\n{_switches(here)}")
    return parts


def _one_process(way: Way) -> str:
    """The title of the way with one process that has the framework, and the kind of gradients, of `way`.

    TensorFlow's one process has sparse gradients where there are any, so it stands beside all its ways.
    """
    sparse = way.sparse and way.framework == "torch"
    found = [w for w in WAYS if not w.joins and (w.framework, w.sparse) == (way.framework, sparse)]
    return found[0].title


def _table(records: Sequence[Record], cell: Callable[[List[Record], Way], str]) -> str:
    """A row for each way, and a column for each model; `cell` gets the records of both."""
    models = {record["whole"]: record["images"] for record in records}
    rows = []
    for way in WAYS:
        own = {model: _of(records, model, way.title) for model in models}
        if any(own.values()):
            rows.append([way.title, *(cell(own[model], way) if own[model] else "–" for model in models)])
    return markdown(["", *(f"{model}, {images} a step" for model, images in models.items())], rows)


def _of(records: Sequence[Record], model: str, title: str) -> List[Record]:
    return [record for record in records if (record["whole"], record["way"]) == (model, title)]


def _median(records: Sequence[Record]) -> float:
    return statistics.median(seconds for record in records for seconds in record["seconds"])


def _times(records: Sequence[Record]) -> str:
    def cell(own: List[Record], way: Way) -> str:
        median, ours = _median(own), _of(records, own[0]["whole"], OURS)
        ratio = f" ({median / _median(ours):.2f}×)" if ours and way.title != OURS else ""
        return f"{_count(own[0]['images'] / median)}/s, {time_text(median)}{ratio}"

    return _table(records, cell)


def _ratios(records: Sequence[Record], base: Sequence[Record], title: Callable[[Way], str]) -> str:
    """The times of `records` divided by those of `base`; `title` is that of the way in `base` for a way."""

    def cell(own: List[Record], way: Way) -> str:
        beside = _of(base, own[0]["whole"], title(way))
        return f"{_median(own) / _median(beside):.2f}×" if beside else "–"

    return _table(records, cell)


def _switches(records: Sequence[Record]) -> str:
    def cell(own: List[Record], _: Way) -> str:
        kinds = [statistics.median(record[kind] for record in own) for kind in ("voluntary", "involuntary")]
        return " + ".join(map(_count, kinds))

    return _table(records, cell)


def _count(count: float) -> str:
    return f"{count:,.0f}" if count >= 10 else f"{count:.1f}"

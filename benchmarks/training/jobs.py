"""The jobs of the training benchmarks."""

from __future__ import annotations

import pathlib
from typing import Dict, List, NamedTuple, Optional

from driver.jobs import Outcome, run_job
from peers.base import BENCHMARKS, Job
from peers.plugin import PYTHON


class Size(NamedTuple):
    """How much is trained in one process."""

    batch_size: int
    steps: int


LIMIT_SECONDS = 300


def train(
    model: str,
    size: Size,
    output: pathlib.Path,
    ranks: int = 0,
    reduce: bool = False,
    threads: int = 0,
    environment: Optional[Dict[str, str]] = None,
) -> Outcome:
    """Trains in a new job.

    Args:
        model: the name of a model in models.py.
        size: how much is trained.
        output: the file for the results; the log lies beside it.
        ranks: the number of ranks; 0 is stock TensorFlow without the plugin.
        reduce: whether gradients are averaged over the ranks.
        threads: TensorFlow's threads in each rank; 0 is its default.
        environment: variables in addition to this process's.
    """
    command: List[str] = [PYTHON]
    if ranks:
        command += ["-m", "smddprun", "-np", str(ranks), "--no-tag-output", PYTHON]
    command += [str(BENCHMARKS / "training_worker.py"), f"--model={model}", f"--output={output}"]
    command += [f"--batch-size={size.batch_size}", f"--steps={size.steps}", f"--threads={threads}"]
    command += ["--plugin"] if ranks else []
    command += ["--reduce"] if reduce else []
    return run_job(Job(command, environment or {}), output, LIMIT_SECONDS, output.with_suffix(".log"))

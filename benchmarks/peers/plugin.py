"""Ours: the op in a tf.function and in eager mode, started by smddprun.

TF_SMDDP_BENCH_PYTHON names the Python that runs it, in which tf_smddp is installed.
"""

from __future__ import annotations

import os
import pathlib
import subprocess
from typing import TYPE_CHECKING, List, Optional, Sequence

from workloads.options import WorkOptions

from peers.base import Implementation, Job

if TYPE_CHECKING:
    import numpy as np
    from workloads.contestant import Contestant

PYTHON = os.environ.get("TF_SMDDP_BENCH_PYTHON", "")


class Plugin(Implementation):
    """The op, in a graph or in eager mode."""

    ours = True

    def __init__(self, name: str, title: str, level: str) -> None:
        self.name, self.title, self.level = name, title, level

    def version(self) -> Optional[str]:
        if not PYTHON:
            return None
        code = "import importlib.metadata as m; print(m.version('tf_smddp'))"
        found = subprocess.run([PYTHON, "-c", code], capture_output=True, text=True, check=False, cwd="/")
        return found.stdout.strip() if found.returncode == 0 else None

    def set_up(self) -> None:
        if not self.version():
            raise SystemExit("Set TF_SMDDP_BENCH_PYTHON to a Python that has tf_smddp; `make bench` does.")

    def job(self, ranks: int, options: WorkOptions, output: pathlib.Path) -> Job:
        launch = [PYTHON, "-m", "smddprun", "-np", str(ranks), "--no-tag-output", PYTHON]
        return Job([*launch, *self.python_arguments(options, output, self.level)])

    def rank_of_hosts(self, options: WorkOptions, output: pathlib.Path) -> Optional[Job]:
        return Job([PYTHON, *self.python_arguments(options, output, self.level)])


IMPLEMENTATIONS = [
    Plugin("graph", "tf_smddp, graph", "graph"),
    Plugin("eager", "tf_smddp, eager", "eager"),
]


def join(mode: str) -> Contestant:
    """Joins the job, and returns this rank."""
    import tensorflow as tf
    from workloads.contestant import Contestant, Trial, chain_length
    from workloads.tensorflow_work import GraphContestant

    import tf_smddp as sdp

    sdp.init()

    if mode == "graph":
        return GraphContestant(
            sdp.rank(), sdp.size(), lambda tensors, _: sdp.grouped_allreduce(tensors, op=sdp.ReduceOp.SUM)
        )

    def reduce(tensors: List[tf.Tensor]) -> List[tf.Tensor]:
        return sdp.grouped_allreduce(tensors, op=sdp.ReduceOp.SUM)

    class EagerTrial(Trial):
        def __init__(self, tensors: List[tf.Tensor], operations: int) -> None:
            self._tensors, self.operations = tensors, operations

        def reduce(self, arrays: List[np.ndarray]) -> List[np.ndarray]:
            return [result.numpy() for result in reduce([tf.constant(array) for array in arrays])]

        def run(self) -> None:
            tensors = self._tensors
            for _ in range(self.operations):
                tensors = reduce(tensors)

    class EagerContestant(Contestant):
        rank, size = sdp.rank(), sdp.size()

        def sweep_trial(self, count: int) -> Trial:
            return EagerTrial([tf.zeros([count])], chain_length(count))

        def set_trial(self, shapes: Sequence[Sequence[int]]) -> Trial:
            return EagerTrial([tf.zeros(shape) for shape in shapes], 1)

        def sum_vector(self, values: np.ndarray) -> np.ndarray:
            return sdp.allreduce(values, 0, 1, op=sdp.ReduceOp.SUM).numpy()

    return EagerContestant()

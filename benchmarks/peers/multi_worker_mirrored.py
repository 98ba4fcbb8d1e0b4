"""TensorFlow's MultiWorkerMirroredStrategy, in TensorFlow 2.15.1, since it does not work with Keras 3."""

from __future__ import annotations

import json
import os
import pathlib
import sys
from typing import TYPE_CHECKING, Any, Callable, List, Optional

from workloads.options import WorkOptions

from peers import install
from peers.base import BENCHMARKS, Implementation, Job

if TYPE_CHECKING:
    from workloads.contestant import Contestant


class MultiWorkerMirrored(Implementation):
    """all_reduce in the replica context of MultiWorkerMirroredStrategy."""

    name, title, level = "multi_worker_mirrored", "MultiWorkerMirroredStrategy", "graph"

    def version(self) -> Optional[str]:
        return install.package_version("tensorflow", "tensorflow-cpu") or install.package_version(
            "tensorflow", "tensorflow"
        )

    def set_up(self) -> None:
        install.venv("tensorflow", install.tensorflow_requirements(), install.TENSORFLOW)

    def job(self, ranks: int, options: WorkOptions, output: pathlib.Path) -> Job:
        launch = [sys.executable, str(BENCHMARKS / "peers" / "launch.py"), str(ranks)]
        worker = self.python_arguments(options, output)
        return Job([*launch, str(install.venv_python("tensorflow")), *worker])

    def rank_of_hosts(self, options: WorkOptions, output: pathlib.Path) -> Optional[Job]:
        return Job([str(install.venv_python("tensorflow")), *self.python_arguments(options, output)])


IMPLEMENTATIONS = [MultiWorkerMirrored()]


def join(mode: str) -> Contestant:
    """Joins the job, and returns this rank."""
    rank = int(os.environ.get("RANK") or os.environ["OMPI_COMM_WORLD_RANK"])
    workers = os.environ["WORKERS"].split(",")
    cluster = {"worker": workers}
    os.environ["TF_CONFIG"] = json.dumps({"cluster": cluster, "task": {"type": "worker", "index": rank}})

    import tensorflow as tf
    from workloads.tensorflow_work import GraphContestant

    strategy = tf.distribute.MultiWorkerMirroredStrategy()

    def reduce(tensors: List[tf.Tensor], _: str) -> List[tf.Tensor]:
        # Without tf.identity, the strategy assumes that a tensor which is no gradient is the same on all
        # replicas.
        reduced = tf.distribute.get_replica_context().all_reduce(
            tf.distribute.ReduceOp.SUM, [tf.identity(tensor) for tensor in tensors]
        )
        return list(reduced)

    def wrap(function: Callable[..., Any]) -> Callable[..., Any]:
        return tf.function(lambda *tensors: strategy.run(function, tensors), autograph=False)

    return GraphContestant(rank, len(workers), reduce, wrap)

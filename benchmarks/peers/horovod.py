"""Horovod 0.28.1, built from source against TensorFlow 2.15.1; later versions of TensorFlow do not work.

It is measured with its default settings over MPI ("as it is"), and over MPI and Gloo with a cycle time of 0.1
ms instead of 1 ms. A tensor may wait for one cycle until it is negotiated, so this is in Horovod's favour.
Each gradient is reduced by one op, as in Horovod's DistributedGradientTape.
"""

from __future__ import annotations

import pathlib
from typing import TYPE_CHECKING, Dict, List, Optional

from workloads.options import WorkOptions

from peers import install, open_mpi
from peers.base import Implementation, Job

if TYPE_CHECKING:
    from workloads.contestant import Contestant

VERSION = "0.28.1"
SHORT_CYCLE_MS = "0.1"


class Horovod(Implementation):
    """Horovod, over MPI or Gloo."""

    level = "graph"

    def __init__(self, name: str, title: str, over: str, cycle_ms: str = "") -> None:
        self.name, self.title, self._over, self._cycle_ms = name, title, over, cycle_ms

    def version(self) -> Optional[str]:
        return install.package_version("horovod", "horovod")

    def set_up(self) -> None:
        install.debian("openmpi-bin", "libopenmpi-dev", "cmake", "g++", "make")
        needed = ["setuptools<70", "wheel", "cffi", "cloudpickle", "psutil", "pyyaml", "packaging"]
        python = install.venv("horovod", [*install.tensorflow_requirements(), *needed], install.TENSORFLOW)
        if self.version() == VERSION:
            return
        print("Building Horovod, which takes some minutes", flush=True)
        install.run(
            [python, "-m", "pip", "install", "--no-build-isolation", "--no-deps", f"horovod=={VERSION}"],
            {
                "HOROVOD_WITH_TENSORFLOW": "1",
                "HOROVOD_WITHOUT_PYTORCH": "1",
                "HOROVOD_WITHOUT_MXNET": "1",
                "HOROVOD_WITH_MPI": "1",
                "HOROVOD_WITH_GLOO": "1",
                # Horovod's CMake file runs `python`.
                "PATH": f"{python.parent}:/usr/bin:/bin",
            },
        )

    def job(self, ranks: int, options: WorkOptions, output: pathlib.Path) -> Job:
        python = install.venv_python("horovod")
        worker = [str(python), *self.python_arguments(options, output)]
        environment: Dict[str, str] = {"HOROVOD_CYCLE_TIME": self._cycle_ms} if self._cycle_ms else {}
        if self._over == "mpi":
            return Job([*open_mpi.launch(ranks), *worker], environment)
        # horovodrun runs `python`.
        environment["PATH"] = f"{python.parent}:/usr/bin:/bin"
        return Job([str(python.parent / "horovodrun"), "--gloo", "-np", str(ranks), *worker], environment)

    def rank_of_hosts(self, options: WorkOptions, output: pathlib.Path) -> Optional[Job]:
        if self._over != "mpi":
            return None
        environment: Dict[str, str] = {"HOROVOD_CYCLE_TIME": self._cycle_ms} if self._cycle_ms else {}
        python = install.venv_python("horovod")
        return Job([str(python), *self.python_arguments(options, output)], environment)


IMPLEMENTATIONS = [
    Horovod("horovod", "Horovod as it is, MPI", "mpi"),
    Horovod("horovod_mpi", "Horovod, MPI", "mpi", SHORT_CYCLE_MS),
    Horovod("horovod_gloo", "Horovod, Gloo", "gloo", SHORT_CYCLE_MS),
]


def join(mode: str) -> Contestant:
    """Joins the job, and returns this rank."""
    import horovod.tensorflow as hvd
    import tensorflow as tf
    from workloads.tensorflow_work import GraphContestant

    class HorovodContestant(GraphContestant):
        def close(self) -> None:
            hvd.shutdown()

    def reduce(tensors: List[tf.Tensor], label: str) -> List[tf.Tensor]:
        return [hvd.allreduce(tensor, op=hvd.Sum, name=f"{label}.{i}") for i, tensor in enumerate(tensors)]

    hvd.init()
    return HorovodContestant(hvd.rank(), hvd.size(), reduce)

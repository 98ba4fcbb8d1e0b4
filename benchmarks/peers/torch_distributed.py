"""PyTorch with its Gloo backend, and with ours: torch.distributed.all_reduce, in place.

Gloo reduces a gradient set as torch's DistributedDataParallel does it: the gradients are views into flat
buckets, the first of 1 MB and the others of 25 MB, in the reverse order of the variables. All buckets are
reduced at once. Ours reduces it as torch_smddp's does: each gradient by itself, in one group.
"""

from __future__ import annotations

import os
import pathlib
import re
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING, List, Optional, Sequence

from workloads.options import ELEMENT_BYTES, WorkOptions

from peers import install
from peers.base import BENCHMARKS, ROOT, Implementation, Job

if TYPE_CHECKING:
    import numpy as np
    from workloads.contestant import Contestant

FIRST_BUCKET_BYTES = 1 << 20
BUCKET_BYTES = 25 << 20


class TorchGloo(Implementation):
    """torch.distributed over Gloo."""

    name, title, level, backend = "torch_gloo", "torch gloo", "torch", "gloo"

    def version(self) -> Optional[str]:
        return install.package_version("torch", "torch")

    def set_up(self) -> None:
        python = install.venv("torch", ["numpy"])
        if not TorchGloo.version(self):
            self._install_torch(python)
        # setuptools would pack modules that were deleted since the last build.
        shutil.rmtree(ROOT / "build", ignore_errors=True)
        pip = [python, "-m", "pip", "install", "--quiet", "--no-deps", "--force-reinstall"]
        install.run([*pip, "--no-build-isolation", ROOT])

    def _install_torch(self, python: pathlib.Path) -> None:
        # PyPI's torch installs gigabytes of CUDA. pip's configuration may name an index that has the CPU
        # build.
        found = subprocess.run(
            [str(python), "-m", "pip", "index", "versions", "torch"],
            capture_output=True,
            text=True,
            check=False,
        )
        cpu_builds = re.findall(r"[\d.]+\+cpu", found.stdout)
        wanted = f"torch=={cpu_builds[0]}" if cpu_builds else "torch>=2.4"
        install.run([python, "-m", "pip", "install", "--quiet", wanted, "psutil", "setuptools", "wheel"])

    def job(self, ranks: int, options: WorkOptions, output: pathlib.Path) -> Job:
        launch = [sys.executable, str(BENCHMARKS / "peers" / "launch.py"), str(ranks)]
        return Job(
            [
                *launch,
                str(install.venv_python("torch")),
                *self.python_arguments(options, output, self.backend),
            ]
        )


class TorchSmddp(TorchGloo):
    """torch.distributed over the engine."""

    name, title, level, backend = "torch_smddp", "torch_smddp", "torch_smddp", "smddp"
    ours = True

    def version(self) -> Optional[str]:
        return install.package_version("torch", "tf_smddp")


IMPLEMENTATIONS = [TorchGloo(), TorchSmddp()]


def bucket_counts(counts: Sequence[int]) -> List[List[int]]:
    """Returns the indices of the gradients in each bucket, in the order in which they are reduced."""
    buckets: List[List[int]] = [[]]
    filled, limit = 0, FIRST_BUCKET_BYTES
    for index in reversed(range(len(counts))):
        buckets[-1].append(index)
        filled += counts[index] * ELEMENT_BYTES
        if filled >= limit:
            buckets.append([])
            filled, limit = 0, BUCKET_BYTES
    return [bucket for bucket in buckets if bucket]


def join(mode: str) -> Contestant:
    """Joins the job over the backend `mode`, and returns this rank."""
    import math

    import numpy as np
    import torch
    import torch.distributed as dist
    from workloads.contestant import Contestant, Trial, chain_length

    if mode == "smddp":
        import torch_smddp  # noqa: F401  (it registers the backend)
    dist.init_process_group(mode)
    torch.set_num_threads(max(1, len(os.sched_getaffinity(0)) // dist.get_world_size()))

    class SweepTrial(Trial):
        def __init__(self, count: int) -> None:
            self._tensor, self.operations = torch.zeros(count), chain_length(count)

        def reduce(self, arrays: List[np.ndarray]) -> List[np.ndarray]:
            tensors = [torch.from_numpy(array.copy()) for array in arrays]
            for tensor in tensors:
                dist.all_reduce(tensor)
            return [tensor.numpy() for tensor in tensors]

        def run(self) -> None:
            for _ in range(self.operations):
                dist.all_reduce(self._tensor)

    class SetTrial(Trial):
        def __init__(self, shapes: Sequence[Sequence[int]]) -> None:
            counts = [math.prod(shape) for shape in shapes]
            self._buckets = []
            if mode == "smddp":
                self._gradients = [torch.zeros(*shape) for shape in shapes]
                return
            self._gradients = [torch.empty(0)] * len(counts)
            for indices in bucket_counts(counts):
                bucket = torch.zeros(sum(counts[i] for i in indices))
                for i, view in zip(indices, bucket.split([counts[i] for i in indices])):
                    self._gradients[i] = view.view(*shapes[i])
                self._buckets.append(bucket)

        def _reduce(self) -> None:
            if mode == "smddp":
                with dist._coalescing_manager():
                    for gradient in self._gradients:
                        dist.all_reduce(gradient)
            for work in [dist.all_reduce(bucket, async_op=True) for bucket in self._buckets]:
                work.wait()

        def reduce(self, arrays: List[np.ndarray]) -> List[np.ndarray]:
            for gradient, array in zip(self._gradients, arrays):
                gradient.copy_(torch.from_numpy(array))
            self._reduce()
            return [gradient.numpy() for gradient in self._gradients]

        def run(self) -> None:
            self.baseline()
            self._reduce()

        def baseline(self) -> None:
            for gradient in self._gradients:
                gradient.fill_(0.0)

    class TorchContestant(Contestant):
        rank, size = dist.get_rank(), dist.get_world_size()

        def sweep_trial(self, count: int) -> Trial:
            return SweepTrial(count)

        def set_trial(self, shapes: Sequence[Sequence[int]]) -> Trial:
            return SetTrial(shapes)

        def sum_vector(self, values: np.ndarray) -> np.ndarray:
            tensor = torch.from_numpy(np.array(values))
            dist.all_reduce(tensor)
            return tensor.numpy()

        def close(self) -> None:
            dist.barrier()
            dist.destroy_process_group()

    return TorchContestant()

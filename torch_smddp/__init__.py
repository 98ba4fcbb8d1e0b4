"""PyTorch on the engine: the backend "smddp" of torch.distributed, and a DistributedDataParallel of our own.

    import torch_smddp  # registers the backend
    torch.distributed.init_process_group(backend="smddp")

It imports neither TensorFlow nor tf_smddp. The ranks are started by smddprun, torchrun, mpirun, srun or
torch.multiprocessing.spawn.
"""

from __future__ import annotations

import os
from typing import Any

import torch.distributed as dist

from smddp import communicators, uncaught
from smddprun import environment
from torch_smddp import _start
from torch_smddp._parallel import DistributedDataParallel
from torch_smddp._process_group import ProcessGroupSmddp

__all__ = ["DistributedDataParallel", "ProcessGroupSmddp"]


def _create(options: Any, _: Any) -> ProcessGroupSmddp:
    """Makes a process group for torch: the members alone call this."""
    rank, timeout = options.group_rank, options.timeout
    ranks = list(options.global_ranks_in_group)
    if not ranks:  # the first group
        _start.join(options.store, rank, options.group_size, timeout)
    store = _start.own_store(options.group_id, options.store)
    if ranks:
        communicator = _start.make_communicator(ranks, rank, store)
    else:
        communicator, ranks = communicators.WORLD, list(range(options.group_size))
    return ProcessGroupSmddp(communicator, rank, ranks, store, timeout)


uncaught.know_front_end(os.path.dirname(__file__))
# init_process_group() without arguments reads them, and torch has no way to ask mpirun or srun.
os.environ.update(environment.with_torch_variables(os.environ, os.getppid()))
if "SMDDP" not in dist.Backend._plugins:
    dist.Backend.register_backend("smddp", _create, extended_api=True, devices=["cpu", "cuda"])

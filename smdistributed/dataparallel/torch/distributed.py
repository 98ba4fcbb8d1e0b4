"""`import smdistributed.dataparallel.torch.distributed as dist`: torch.distributed on the backend "smddp"."""

from __future__ import annotations

from typing import Any, Optional

import torch
import torch.distributed
from torch.distributed import all_gather as all_gather
from torch.distributed import all_reduce as all_reduce
from torch.distributed import all_to_all_single as all_to_all_single
from torch.distributed import barrier as barrier
from torch.distributed import get_rank as get_rank
from torch.distributed import get_world_size as get_world_size
from torch.distributed import group as group
from torch.distributed import is_available as is_available
from torch.distributed import is_initialized as is_initialized

import smddp
import torch_smddp as torch_smddp  # registers the backend


class ReduceOp:
    """SMDDP's names of the reductions, as torch's own objects."""

    AVERAGE = torch.distributed.ReduceOp.AVG
    SUM = torch.distributed.ReduceOp.SUM
    MIN = torch.distributed.ReduceOp.MIN
    MAX = torch.distributed.ReduceOp.MAX


def init_process_group(backend: str = "smddp", **arguments: Any) -> None:
    """Joins the job: `torch.distributed.init_process_group`, whose arguments it takes.

    Raises:
        RuntimeError, ValueError: as torch's.
    """
    torch.distributed.init_process_group(backend, **arguments)


def get_local_rank() -> int:
    """This process's index among the ranks of this host, from 0.

    Raises:
        RuntimeError: before `init_process_group`.
    """
    return smddp.local_rank()


def broadcast(
    tensor: torch.Tensor,
    src: int = 0,
    group: Any = None,  # noqa: F811, as SMDDP calls it
    async_op: bool = False,
) -> Optional[Any]:
    """Replaces the tensor by that of rank `src`: `torch.distributed.broadcast`.

    Returns:
        A work to wait for if `async_op`, else None.
    """
    return torch.distributed.broadcast(tensor, src, group=group, async_op=async_op)

"""The parameters and buffers of a module on all ranks: compared, and broadcast."""

from __future__ import annotations

import hashlib
import itertools
from typing import Any, Dict, List, Sequence, Tuple

import torch
import torch.distributed as dist

from torch_smddp._process_group import ProcessGroupSmddp

# Smaller tensors of one dtype are broadcast as one.
_SMALL_BYTES = 1 << 16
_num_compared = 0  # modules


def strides_of(parameter: torch.Tensor) -> Tuple[int, ...]:
    """Returns the strides that autograd gives the parameter's gradient, without gaps."""
    return torch.empty_like(parameter, device="meta", requires_grad=False).stride()


def broadcast(tensors: Sequence[torch.Tensor], root: int, group: ProcessGroupSmddp) -> None:
    """Replaces the content of tensors by that of the rank `root` of the job. Collective of the group.

    The tensors' versions stay: autograd may have saved them.
    """
    small: Dict[Any, List[torch.Tensor]] = {}
    works = []
    for each in tensors:
        if each.numel() * each.element_size() < _SMALL_BYTES:
            small.setdefault((each.dtype, each.device), []).append(each.data)
        else:
            works.append(dist.broadcast(each.data, root, group, async_op=True))
    packs = [(of, torch.cat([each.reshape(-1) for each in of])) for of in small.values()]
    works += [dist.broadcast(flat, root, group, async_op=True) for _, flat in packs]
    for work in works:
        work.wait()
    if group.ranks[group.rank()] != root:
        for of, flat in packs:
            parts = flat.split([each.numel() for each in of])
            torch._foreach_copy_(of, [part.view(each.shape) for part, each in zip(parts, of)])


def compare(descriptions: Sequence[str], group: ProcessGroupSmddp) -> int:
    """Checks that all ranks have the same parameters and buffers, and returns a number for the wrapper.

    Collective of the group.

    Raises:
        RuntimeError: they have not; the text shows the first one that differs, on two ranks.
    """
    global _num_compared
    text = "\n".join(descriptions).encode()
    own = int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little", signed=True)
    numbers = torch.tensor([own, ~own, _num_compared + 1])
    dist.all_reduce(numbers, dist.ReduceOp.MAX, group)
    largest, negated_least, _num_compared = numbers.tolist()
    if largest == ~negated_least:
        return _num_compared
    of_ranks: List[Any] = [None] * group.size()
    dist.all_gather_object(of_ranks, list(descriptions), group)
    for rank, theirs in zip(group.ranks, of_ranks):
        for one, other in itertools.zip_longest(of_ranks[0], theirs, fillvalue="nothing"):
            if one != other:
                raise RuntimeError(
                    f"the ranks have wrapped different modules: rank {group.ranks[0]} has {one}, where rank "
                    f"{rank} has {other} (rank {group.ranks[0]} has {len(of_ranks[0])} parameters and "
                    f"buffers, rank {rank} {len(theirs)}). Make the same module on all ranks"
                )
    raise AssertionError("the hashes differ, but not what was hashed")


def describe(kind: str, name: str, tensor: torch.Tensor) -> str:
    strides = strides_of(tensor)
    layout = "" if tensor.is_contiguous() else f" with the strides {strides}"
    use = "" if tensor.requires_grad or kind == "buffer" else ", frozen"
    return f"the {kind} {name!r} {tuple(tensor.shape)} of {tensor.dtype}{layout}{use}"

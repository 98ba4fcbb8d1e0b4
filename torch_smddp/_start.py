"""The ranks of torch's first process group become the engine's job, whoever has started them."""

from __future__ import annotations

import datetime
import os
import secrets
import socket
from typing import Any, Dict, List, Sequence

import torch.distributed as dist
from torch.distributed.constants import default_pg_timeout

import smddp
from smddp import communicators

# What smddprun tells its ranks.
_RENDEZVOUS = "SMDDP_RENDEZVOUS"
_MOST_SECONDS = 86400  # of SMDDP_BOOTSTRAP_TIMEOUT
_first_groups = 0  # that this process was in
_made: Dict[str, int] = {}  # how many groups of each name, since the last first group
_led = 0  # groups whose first member this process is


def join(store: Any, rank: int, size: int, timeout: datetime.timedelta) -> None:
    """Joins the engine's job, unless this process is in it already. Collective of all ranks.

    The ranks of one host meet by an id that rank 0 puts into the store. Those of several hosts meet as their
    launcher's variables say, since MPI needs its launcher.

    Args:
        store: torch's.
        rank: this process's index among the ranks.
        size: their number.
        timeout: how long to wait for them; torch's default stands for SMDDP_BOOTSTRAP_TIMEOUT.

    Raises:
        RuntimeError: the ranks could not be connected, or the launcher has given them other numbers.
    """
    global _first_groups
    if not smddp.is_initialized():
        if _RENDEZVOUS not in os.environ:
            _meet(store, rank, size)
        if timeout != default_pg_timeout:
            seconds = min(max(1, round(timeout.total_seconds())), _MOST_SECONDS)
            os.environ.setdefault("SMDDP_BOOTSTRAP_TIMEOUT", str(seconds))
        smddp.init()
    if (smddp.rank(), smddp.size()) != (rank, size):
        raise RuntimeError(
            f"init_process_group() got rank {rank} of {size}, but this process is rank {smddp.rank()} of "
            f"{smddp.size()} in the job. Leave rank and world_size out, and start all ranks with one "
            "launcher: smddprun -np 2 python train.py, or torchrun --nproc-per-node 2 train.py"
        )
    _first_groups += 1
    _made.clear()


def own_store(name: str, store: Any) -> Any:
    """Returns a store for the next group of a name alone. All members must call it for each group.

    torch gives a name again after destroy_process_group(), and torchrun's store is the same one then.
    """
    _made[name] = _made.get(name, 0) + 1
    return dist.PrefixStore(f"smddp/{_first_groups}/{_made[name]}", store)


def make_communicator(ranks: Sequence[int], rank: int, store: Any) -> int:
    """Makes the communicator of a group. Collective of its members.

    Args:
        ranks: the members' ranks in the job.
        rank: this process's index among them.
        store: for this group alone.

    Raises:
        RuntimeError: the members disagree, or there is no room for one more.
    """
    global _led
    if rank == 0:
        _led += 1
        store.set("key", str(ranks[0] + smddp.size() * _led))  # of no other group in the job
    return communicators.create_communicator_among(ranks, int(store.get("key")))


def _meet(store: Any, rank: int, size: int) -> None:
    """Sets what smddp.init() reads, where all ranks are on this host."""
    hosts = _exchange(store, rank, size)
    if len(set(hosts)) > 1:
        return
    if rank == 0:
        store.set("smddp/job", secrets.token_hex(16))
    place = {"RANK": rank, "SIZE": size, "LOCAL_RANK": rank, "LOCAL_SIZE": size}
    os.environ.update({f"SMDDP_{name}": str(value) for name, value in place.items()})
    os.environ["SMDDP_JOB_ID"] = store.get("smddp/job").decode()


def _exchange(store: Any, rank: int, size: int) -> List[bytes]:
    """Returns what tells the hosts of all ranks apart: two containers of one machine are two hosts."""
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        boot = file.read().strip()
    spaces = [str(os.stat(f"/proc/self/ns/{each}").st_ino) for each in ("net", "ipc", "mnt")]
    store.set(f"smddp/host/{rank}", " ".join((socket.gethostname(), boot, *spaces)))
    return [store.get(f"smddp/host/{each}") for each in range(size)]

"""The cores, the memory and the other limits of this host, as far as they matter to a job."""

from __future__ import annotations

import os
import resource
from collections.abc import Mapping

from smddprun import cores
from smddprun.check.findings import Finding

# Cards for RDMA (InfiniBand, EFA). Their drivers want the memory that they read to be locked.
_RDMA_CARDS = "/sys/class/infiniband"
# init() of the largest job on a host takes 3 descriptors for each rank, and 16 more.
_NEEDED_FILES = 3 * 64 + 16


def find(environ: Mapping[str, str]) -> list[Finding]:
    """Returns what there is to say of this host."""
    quota = cores.quota()
    return [
        cores_of(os.cpu_count() or 1, len(os.sched_getaffinity(0)), quota, cores.usable()),
        memory(_physical_memory(), cores.memory_limit(), environ.get("SMDDP_ARENA_BYTES")),
        *limits(
            resource.getrlimit(resource.RLIMIT_NOFILE)[0],
            resource.getrlimit(resource.RLIMIT_MEMLOCK)[0],
            _names_in(_RDMA_CARDS),
            resource.getrlimit(resource.RLIMIT_AS)[0],
            resource.getrlimit(resource.RLIMIT_FSIZE)[0],
        ),
    ]


def cores_of(machine: int, affinity: int, quota: float | None, usable: int) -> Finding:
    """Returns what there is to say of the cores. Pure.

    Args:
      machine: the cores of the machine.
      affinity: those on which this process may run.
      quota: of the control group, in cores; None for no limit.
      usable: those that the launcher divides among the ranks.
    """
    text = f"{usable} of {machine} may be used"
    if affinity < machine:
        text += f"; this process is bound to {affinity}"
    if quota is not None:
        text += f"; the control group's quota is {quota:g}"
    if affinity == 1 and machine > 1:
        return Finding(
            "cores",
            text,
            "let the process run on all cores: leave out taskset, use --bind-to none under Open MPI and "
            "--cpu-bind=none under Slurm",
        )
    return Finding("cores", text)


def memory(physical: int, group: int | None, arena: str | None) -> Finding:
    """Returns what there is to say of the memory. Pure.

    Args:
      physical: the memory of the machine, in bytes.
      group: the limit of the control group, in bytes; None for no limit.
      arena: the text of SMDDP_ARENA_BYTES, or None.
    """
    # cgroup version 1 shows no limit as a number that no machine has.
    limited = group is not None and group < physical
    most = min(physical, group) if group is not None else physical
    text = f"{size(physical)}, "
    text += f"and the control group's limit is {size(group)}" if limited and group else "no lower limit"
    if arena is None or not arena.isdecimal():
        return Finding("memory", f"{text}\nthe arena of a rank's tensors: up to {size(most)}")
    text += f"\nthe arena of a rank's tensors: up to {size(int(arena))} (SMDDP_ARENA_BYTES={arena})"
    if int(arena) > most:
        return Finding(
            "memory", text, f"lower SMDDP_ARENA_BYTES to at most {most}, which is the memory that there is"
        )
    return Finding("memory", text)


def limits(files: int, locked: int, rdma_cards: list[str], address: int, file_size: int) -> list[Finding]:
    """Returns the limits (`ulimit`) that stand in the way of a job; none if nothing does. Pure.

    Args:
      files: the number of open files; this and the next ones as `resource.getrlimit` has them.
      locked: bytes of locked memory.
      rdma_cards: the names of network cards that need locked memory.
      address: bytes of address space.
      file_size: bytes of a file, which holds for shared memory, too.
    """
    found = []
    if 0 <= files < _NEEDED_FILES:
        found.append(
            Finding(
                "open files",
                f"{files} at most, and a job of 64 ranks on a host takes {_NEEDED_FILES}",
                f"raise the limit with 'ulimit -n {max(_NEEDED_FILES, 1024)}'",
            )
        )
    if rdma_cards and locked >= 0:
        found.append(
            Finding(
                "locked memory",
                f"{size(locked)} at most, and the network card {rdma_cards[0]} needs its buffers locked",
                "raise the limit with 'ulimit -l unlimited', or in a container with '--ulimit memlock=-1'",
            )
        )
    for topic, limit, flag in (("address space", address, "-v"), ("file size", file_size, "-f")):
        if limit >= 0:
            found.append(
                Finding(
                    topic,
                    f"{size(limit)} at most, which makes the memory smaller that the ranks share",
                    f"remove the limit with 'ulimit {flag} unlimited'",
                )
            )
    return found


def size(num_bytes: int) -> str:
    """Returns a text such as '7.7 GiB'."""
    value, units = float(num_bytes), ["bytes", "KiB", "MiB", "GiB", "TiB"]
    while value >= 1024 and len(units) > 1:
        value /= 1024
        units.pop(0)
    return f"{value:.3g} {units[0]}" if value < 1000 else f"{value:.0f} {units[0]}"


def _physical_memory() -> int:
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _names_in(directory: str) -> list[str]:
    try:
        return sorted(os.listdir(directory))
    except OSError:
        return []

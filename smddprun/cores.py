"""The cores that this process may use, how they are divided among ranks, and the limits of its cgroups."""

from __future__ import annotations

import os

_CGROUP_ROOT = "/sys/fs/cgroup"
_CORES_PER_RANK = 2


def fair_share(cores: int, num_ranks: int) -> int:
    """Returns the cores of one of `num_ranks` ranks: an equal share, but at least 1."""
    return max(1, cores // num_ranks)


def fitting_ranks(cores: int) -> int:
    """Returns the number of ranks for a host without GPUs: one for each two cores, at least 1."""
    return max(1, cores // _CORES_PER_RANK)


def note(num_ranks: int, cores: int) -> str:
    """Returns the line for a job with more ranks than cores."""
    shared = "1 core" if cores == 1 else f"{cores} cores"
    return f"note: {num_ranks} ranks share {shared} and take turns; '-np {cores}' may be faster"


def _read(path: str) -> str | None:
    # A file that does not exist, or that this user may not read, sets no limit that we could know.
    try:
        with open(path) as file:
            return file.read().strip()
    except OSError:
        return None


def parse_cpu_max(text: str) -> float | None:
    """The quota in cgroup v2's `cpu.max`, in cores: "150000 100000" is 1.5, "max 100000" is no limit."""
    quota, _, period = text.partition(" ")
    if quota == "max":
        return None
    return int(quota) / int(period or 100000)


def parse_cfs(quota: str, period: str) -> float | None:
    """The quota in cgroup v1's `cpu.cfs_quota_us` and `cpu.cfs_period_us`, in cores; -1 is no limit."""
    return int(quota) / int(period) if int(quota) > 0 else None


def parse_membership(text: str, controller: str = "cpu") -> list[tuple[str, str]]:
    """Reads `/proc/self/cgroup`: (directory, path in it) of each hierarchy that has the controller."""
    places = []
    for line in text.splitlines():
        number, controllers, path = line.split(":", 2)
        if number == "0" and not controllers:
            places.append((_CGROUP_ROOT, path))
        elif controller in controllers.split(","):
            places += [(f"{_CGROUP_ROOT}/{name}", path) for name in {controllers, controller}]
    return places


def groups(controller: str) -> list[str]:
    """The directories of this process's control groups that may limit it: every level up to the root.

    A group's limit holds for all groups inside it.
    """
    directories = []
    for root, path in parse_membership(_read("/proc/self/cgroup") or "", controller):
        parts = [part for part in path.split("/") if part]
        directories += ["/".join([root, *parts[:depth]]) for depth in range(len(parts) + 1)]
    return directories


def quota() -> float | None:
    """The smallest CPU quota of this process's cgroups, in cores, or None without a limit."""
    limits: list[float] = []
    for directory in groups("cpu"):
        cpu_max = _read(f"{directory}/cpu.max")
        if cpu_max:
            limits.append(parse_cpu_max(cpu_max) or float("inf"))
        cfs_quota, cfs_period = (
            _read(f"{directory}/cpu.cfs_quota_us"),
            _read(f"{directory}/cpu.cfs_period_us"),
        )
        if cfs_quota and cfs_period:
            limits.append(parse_cfs(cfs_quota, cfs_period) or float("inf"))
    smallest = min(limits, default=float("inf"))
    return None if smallest == float("inf") else smallest


def memory_limit() -> int | None:
    """The smallest memory limit of this process's cgroups, in bytes, or None without a limit."""
    limits = []
    for directory in groups("memory"):
        for name in ("memory.max", "memory.limit_in_bytes"):
            text = _read(f"{directory}/{name}") or ""
            if text.isdecimal():  # "max" is no limit
                limits.append(int(text))
    return min(limits, default=None)


def usable() -> int:
    """The number of cores that this process may use: its affinity, limited by its cgroups' quota; at least 1.

    The quota is rounded down. With one thread more than it allows, the kernel throttles all threads, and the
    ranks wait for each other.
    """
    cores = len(os.sched_getaffinity(0))
    limit = quota()
    return cores if limit is None else max(1, min(cores, int(limit)))

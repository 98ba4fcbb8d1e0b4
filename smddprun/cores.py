"""How many cores this process may use, and how many of them are one rank's fair share."""

from __future__ import annotations

import os

_CGROUP_ROOT = "/sys/fs/cgroup"


def fair_share(cores: int, num_ranks: int) -> int:
    """Cores for each of `num_ranks` ranks: at least 1; together no more than there are, if they suffice."""
    return max(1, cores // num_ranks)


def _read(path: str) -> str | None:
    # A file that is not there, or not ours to read, sets no limit that we could know of.
    try:
        with open(path) as file:
            return file.read().strip()
    except OSError:
        return None


def parse_cpu_max(text: str) -> float | None:
    """Cores granted by cgroup v2's `cpu.max` ("150000 100000" is 1.5; "max 100000" is no limit)."""
    quota, _, period = text.partition(" ")
    if quota == "max":
        return None
    return int(quota) / int(period or 100000)


def parse_cfs(quota: str, period: str) -> float | None:
    """Cores granted by cgroup v1's `cpu.cfs_quota_us` and `cpu.cfs_period_us` (a quota of -1 is no limit)."""
    return int(quota) / int(period) if int(quota) > 0 else None


def parse_membership(text: str) -> list[tuple[str, str]]:
    """(directory of the controller, path in it) for each hierarchy of `/proc/self/cgroup` that limits CPU."""
    places = []
    for line in text.splitlines():
        number, controllers, path = line.split(":", 2)
        if number == "0" and not controllers:
            places.append((_CGROUP_ROOT, path))
        elif "cpu" in controllers.split(","):
            places += [(f"{_CGROUP_ROOT}/{name}", path) for name in {controllers, "cpu"}]
    return places


def quota() -> float | None:
    """The smallest CPU quota, in cores, of the cgroups that this process is in; None: no limit.

    A limit of a group counts for all groups in it, so each level up to the root is asked.
    """
    limits: list[float] = []
    for root, path in parse_membership(_read("/proc/self/cgroup") or ""):
        parts = [part for part in path.split("/") if part]
        for depth in range(len(parts) + 1):
            directory = "/".join([root, *parts[:depth]])
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


def usable() -> int:
    """Cores that this process may use, at least 1: its affinity, but no more than its cgroups' quota.

    The quota is rounded down: a thread more has all threads throttled, and the ranks wait for each other.
    """
    cores = len(os.sched_getaffinity(0))
    limit = quota()
    return cores if limit is None else max(1, min(cores, int(limit)))

"""Simulates allreduces by number of hosts: sweep.py FOLDER [SECONDS], the seconds that it may take.

FOLDER has what build.sh compiles. Each result is a line of results.csv; what is there is not simulated again.
"""

from __future__ import annotations

import csv
import pathlib
import subprocess
import sys
import time
from typing import Dict, List, Tuple

from simulate import HERE, Network, model

RESULTS = HERE / "results.csv"
FIELDS = ["gbits", "algorithm", "hosts", "per_host", "bytes", "ms"]
# Assumed of a cluster, not measured: 10 us from host to host, and 3 us of CPU for each end of a message.
NETWORKS = {gbits: Network(gbits * 1e9 / 8, 10e-6, 3e-6, 0.1e-9) for gbits in (1, 10, 100)}
MIB = 1 << 20
# HierarchicalTransfer, forced to one of its two exchanges. Messages within a group are larger than the
# model's window, and one at a time would leave the receivers' links idle, so all go at once.
FORCED = {
    "direct": {"algorithm": "ours", "grouped_hosts": MIB},
    "grouped": {"algorithm": "ours", "grouped_hosts": 2, "window_bytes": 1 << 30},
}


def points() -> List[Tuple[int, str, int, int, int]]:
    """The points to simulate, cheap ones first: the fields but the last."""
    found = []
    for gbits in (10, 100):
        for hosts in (4, 8, 16, 24, 32, 64, 128, 256, 300, 512, 1024):
            found.append((gbits, "grouped", hosts, 1, 4 * MIB))
        found += [(gbits, "grouped", hosts, 1, 128 << 10) for hosts in (32, 64, 128, 256)]
    for hosts in (2, 4, 8, 16, 32, 64, 128, 256):
        for gbits in (10, 100, 1) if hosts <= 16 else (10, 100):
            # Messages of a direct exchange are as many as pieces times the square of the hosts.
            found.append((gbits, "direct", hosts, 1, 4 * MIB if hosts <= 128 else 128 << 10))
            if 16 < hosts <= 128:
                found.append((gbits, "direct", hosts, 1, 128 << 10))
        for gbits in (10, 100, 1) if hosts <= 16 else (10,):
            found.append((gbits, "hosts_ring", hosts, 1, 4 * MIB))
            found.append((gbits, "halving", hosts, 1, 4 * MIB))
        if hosts <= 16:
            found.append((10, "horovod", hosts, 1, 4 * MIB))
            found.append((10, "server", hosts, 1, 4 * MIB))
        if hosts <= 8:
            found.append((10, "direct", hosts, 8, 4 * MIB))
            found.append((10, "ring", hosts, 8, 4 * MIB))
    cost = {"direct": 16, "grouped": 1}
    return sorted(found, key=lambda p: (p[2] * p[3]) ** 2 * p[4] * cost.get(p[1], 1))


def read() -> List[Dict[str, str]]:
    """The results so far."""
    if not RESULTS.exists():
        return []
    with RESULTS.open() as file:
        return list(csv.DictReader(file))


def main() -> None:
    """Adds the results."""
    folder = pathlib.Path(sys.argv[1]).resolve()
    deadline = time.monotonic() + float(sys.argv[2] if len(sys.argv) > 2 else 3600)
    there = {tuple(row[field] for field in FIELDS[:-1]) for row in read()}
    with RESULTS.open("a") as file:
        writer = csv.writer(file, lineterminator="\n")
        if not there:
            writer.writerow(FIELDS)
        for point in points():
            left = deadline - time.monotonic()
            if left < 5:
                return
            if tuple(map(str, point)) in there:
                continue
            gbits, algorithm, hosts, per_host, size = point
            servers = 1 if algorithm == "server" else 0
            try:
                result = model(
                    folder,
                    NETWORKS[gbits],
                    hosts + servers,
                    per_host,
                    [size // 4],
                    limit_s=int(left),
                    **{"algorithm": algorithm, "servers": servers, **FORCED.get(algorithm, {})},
                )
            except subprocess.TimeoutExpired:
                print(f"no time for {point}", flush=True)
                return
            writer.writerow([*point, result["ms"][0]])
            file.flush()
            print(*point, result["ms"][0], flush=True)


if __name__ == "__main__":
    main()

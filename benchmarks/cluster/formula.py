"""The time of an allreduce by formula: formula.py prints the page's tables.

It prints its deviations from results.csv, too.

A rank's CPU takes `cpu`, its host's link takes `wire`. Ways that send pieces ahead do both at a time; the
steps of a ring, and of halving and doubling, wait for each other.
"""

from __future__ import annotations

import math
from typing import Dict, List

from simulate import Network, gradients
from sweep import NETWORKS, read

# HierarchicalTransfer: the least size of a piece on few hosts, what a host sends of it to each other one
# on many, its largest size, and the memory of the pieces of a rank that are under way. With more than
# MOST_DIRECT hosts all goes in groups; that small tensors do so with fewer hosts does not matter here.
LEAST_PIECE, PART, LARGEST_PIECE, MEMORY = 128 << 10, 16 << 10, 4 << 20, 16 << 20
MOST_DIRECT = 128
SERVERS_PIECE = 256 << 10
CAP = 25 << 20
# The part of the shorter of `cpu` and `wire` that is not hidden by the other: it begins before it and ends
# after it. Chosen once, to fit the simulated points.
UNHIDDEN = 0.3
# Between the formula and a simulated point (docs/cluster-model.md).
LARGEST_DEVIATION = 0.2


def ours(network: Network, hosts: int, per_host: int, size: int, in_groups: bool) -> float:
    """Our way: each host sends each other one its part, and then the results; or in groups of hosts."""
    groups = math.ceil(math.sqrt(hosts))
    peers = groups - 1 + math.ceil(hosts / groups) - 1 if in_groups else hosts - 1
    messages = 2 * peers * math.ceil(size / piece_of_ours(size, hosts, per_host))
    moved = 2 * (hosts - 1) / hosts * size
    wire = moved / network.rate
    cpu = 2 * (messages * network.message + moved * network.byte) / per_host
    rounds = 4 * (network.latency + network.message) if in_groups else 2 * network.latency
    return max(wire, cpu) + UNHIDDEN * min(wire, cpu) + rounds


def piece_of_ours(size: int, hosts: int, per_host: int) -> int:
    """The bytes of a piece of HierarchicalTransfer, as simulated; two hosts have 60 KiB now."""
    least = min(max(hosts * PART, LEAST_PIECE), LARGEST_PIECE // 2)
    slots = min(max(MEMORY // (2 * least), 4), 16)
    return max(least, min(2 * least, size // (per_host * slots)))


def seconds(algorithm: str, network: Network, hosts: int, per_host: int, size: int) -> float:
    """The time of one allreduce of `size` bytes."""
    ends = 2 * network.message  # of a message
    # The ranks of a host share its bytes, and its link. In a flat ring there is no more than one at a link.
    sharers = per_host if algorithm in ("hosts_ring", "halving") else 1
    per_byte = 1 / network.rate + 2 * network.byte / sharers
    if algorithm in ("ours", "direct", "grouped"):
        in_groups = algorithm == "grouped" or (algorithm == "ours" and hosts > MOST_DIRECT)
        return ours(network, hosts, per_host, size, in_groups)
    if algorithm in ("ring", "hosts_ring", "horovod"):
        ranks = hosts if algorithm == "hosts_ring" else hosts * per_host
        time = 2 * (ranks - 1) * (network.latency + ends + size / ranks * per_byte)
        if algorithm == "horovod":  # copies, and a cycle's gather and broadcast
            time += 2 * size * network.byte + 4 * network.latency * math.log2(ranks)
        return time
    if algorithm == "halving":
        steps = 2 * math.log2(hosts)
        return steps * (network.latency + ends) + 2 * (hosts - 1) / hosts * size * per_byte
    if algorithm == "server":
        moved = hosts * size  # to the server, and as much from it
        wire = moved / network.rate
        cpu = 2 * (moved / SERVERS_PIECE * network.message + moved * network.byte)
        last = SERVERS_PIECE * hosts / network.rate
        return max(wire, cpu) + UNHIDDEN * min(wire, cpu) + last + 2 * network.latency
    raise ValueError(f"no algorithm {algorithm}")


def step_seconds(algorithm: str, network: Network, hosts: int, per_host: int, name: str) -> float:
    """The time of a set's gradients, when all are ready."""
    cap = 64 << 20 if algorithm == "horovod" else CAP
    time, batch = 0.0, 0
    counts = gradients(name)
    for index, count in enumerate(counts):
        batch += 4 * count
        if batch >= cap or index + 1 == len(counts):
            time += seconds(algorithm, network, hosts, per_host, batch)
            batch = 0
    return time


def deviations() -> List[Dict[str, object]]:
    """The simulated points, beside the formula."""
    rows: List[Dict[str, object]] = []
    for row in read():
        expected = 1e3 * seconds(
            row["algorithm"],
            NETWORKS[int(row["gbits"])],
            int(row["hosts"]),
            int(row["per_host"]),
            int(row["bytes"]),
        )
        rows.append({**row, "formula_ms": expected, "deviation": expected / float(row["ms"]) - 1})
    return rows


CURVES = {  # the title of each, and its algorithm
    "ours": "ours",
    "ring over the hosts": "hosts_ring",
    "halving and doubling over the hosts": "halving",
    "flat ring over all ranks": "ring",
    "Horovod's way": "horovod",
    "one parameter server": "server",
}


def main() -> None:
    """Prints the comparison and the table of the page."""
    for row in sorted(deviations(), key=lambda row: (str(row["algorithm"]), str(row["gbits"]))):
        print(*(row[field] for field in ("algorithm", "gbits", "hosts", "per_host", "bytes", "ms")))
        print(f"    formula {row['formula_ms']:.3f} ms, {row['deviation']:+.1%}")
    for name in ("keras_resnet50", "bert_base"):
        for gbits, network in NETWORKS.items():
            print(f"\n{name}, {gbits} Gbit/s, ms")
            for title, algorithm in CURVES.items():
                times = [step_seconds(algorithm, network, 2**i, 8, name) for i in range(1, 12)]
                print(f"| {title} | " + " | ".join(f"{1e3 * time:,.0f}" for time in times) + " |")


if __name__ == "__main__":
    main()

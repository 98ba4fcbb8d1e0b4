"""Prints from how many hosts on one way between hosts takes 10 % longer than another one, by formula.

First our direct exchange against our exchange in groups; then ours, by its rule, against the others.
"""

from __future__ import annotations

from typing import Sequence

from formula import NETWORKS, step_seconds


def first_loss(way: str, others: Sequence[str], gbits: int, per_host: int, name: str) -> int:
    """The number of hosts; 0 if there is none up to 2,048."""
    network = NETWORKS[gbits]
    for hosts in range(2, 2049):
        least = min(step_seconds(each, network, hosts, per_host, name) for each in others)
        if step_seconds(way, network, hosts, per_host, name) > 1.1 * least:
            return hosts
    return 0


if __name__ == "__main__":
    for set_name in ("keras_resnet50", "bert_base"):
        for rate in NETWORKS:
            for ranks in (1, 8):
                direct = first_loss("direct", ["grouped"], rate, ranks, set_name)
                ours = first_loss("ours", ["hosts_ring", "halving"], rate, ranks, set_name)
                print(f"{set_name}, {rate} Gbit/s, {ranks} ranks: direct {direct}, ours {ours}")

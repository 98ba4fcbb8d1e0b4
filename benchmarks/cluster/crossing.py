"""Prints from how many hosts on our way takes 10 % longer than the best of the others between hosts."""

from __future__ import annotations

from formula import NETWORKS, step_seconds


def first_loss(gbits: int, per_host: int, name: str) -> int:
    """The number of hosts; 0 if there is none up to 2,048."""
    network = NETWORKS[gbits]
    for hosts in range(2, 2049):
        ours = step_seconds("ours", network, hosts, per_host, name)
        others = [step_seconds(each, network, hosts, per_host, name) for each in ("hosts_ring", "halving")]
        if ours > 1.1 * min(others):
            return hosts
    return 0


if __name__ == "__main__":
    for set_name in ("keras_resnet50", "bert_base"):
        for rate in NETWORKS:
            for ranks in (1, 8):
                print(f"{set_name}, {rate} Gbit/s, {ranks} ranks: {first_loss(rate, ranks, set_name)}")

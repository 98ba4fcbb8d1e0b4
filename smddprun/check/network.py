"""The network interfaces of this host."""

from __future__ import annotations

import socket
from collections.abc import Iterable
from typing import NamedTuple

from smddprun.check.findings import Finding

_LOOPBACK = "lo"


class Interface(NamedTuple):
    """A network interface. `mtu` is in bytes."""

    name: str
    up: bool
    addresses: tuple[str, ...]
    mtu: int

    def __str__(self) -> str:
        """Returns a text such as 'eth0: up, 10.0.0.1, MTU 1500'."""
        where = ", ".join(self.addresses) or "no address"
        return f"{self.name}: {'up' if self.up else 'down'}, {where}, MTU {self.mtu}"


def find(several_hosts: bool) -> Finding:
    """Returns what there is to say of the network.

    Args:
      several_hosts: whether this host must reach others.
    """
    try:
        import psutil
    except ModuleNotFoundError:
        return Finding("network", "the Python package 'psutil' is missing", "run 'pip install psutil'")
    states, addresses = psutil.net_if_stats(), psutil.net_if_addrs()
    kinds = (socket.AF_INET, socket.AF_INET6)
    return of(
        [
            Interface(
                name,
                state.isup,
                # "%eth0" after a link-local address names the interface.
                tuple(
                    each.address.partition("%")[0] for each in addresses.get(name, []) if each.family in kinds
                ),
                state.mtu,
            )
            for name, state in sorted(states.items())
        ],
        several_hosts,
    )


def of(interfaces: Iterable[Interface], several_hosts: bool) -> Finding:
    """Returns what there is to say of these interfaces. Pure."""
    others = [each for each in interfaces if each.name != _LOOPBACK]
    text = "\n".join(map(str, others)) or "no interface but the loopback"
    if several_hosts and not any(each.up and each.addresses for each in others):
        return Finding(
            "network", text, "bring an interface up and give it an address that the other hosts can reach"
        )
    return Finding("network", text)

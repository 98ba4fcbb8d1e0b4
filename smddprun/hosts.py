"""The hosts of a job, as `-H` and `--hostfile` name them. Pure, but for what asks about this host."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterable
from typing import NamedTuple

from smddprun.options import MAX_RANKS, UsageError

# Texts that ssh takes for a host and nothing else: a name or an address, with or without a user before it.
_NAME = re.compile(r"([A-Za-z0-9_][A-Za-z0-9_.-]*@)?([A-Za-z0-9_][A-Za-z0-9_.-]*|\[?[0-9A-Fa-f:.%]+\]?)")
_MOST_SHOWN = 80
_LOOPBACK = ("localhost", "127.0.0.1", "::1")


def _shown(text: str) -> str:
    """Returns words of a user's in quotes. A file that is no hostfile may have long lines."""
    return repr(text if len(text) <= _MOST_SHOWN else text[: _MOST_SHOWN - 3] + "...")


class Host(NamedTuple):
    """A host, and the number of ranks that it has room for."""

    name: str
    slots: int


def parse_list(option: str, text: str) -> list[Host]:
    """Parses "host1:8,host2:8". A host without a number has one slot; one that is named again has more.

    Raises:
      UsageError: for an empty name, or a number that is none.
    """
    return _merged(_host(option, part) for part in text.split(","))


def parse_file(path: str, lines: Iterable[str]) -> list[Host]:
    """Parses the lines of a hostfile: "host slots=8", "host:8" or "host". "#" begins a comment.

    Other settings of Open MPI's hostfiles, such as `max_slots`, do not matter here.

    Raises:
      UsageError: for a line that is none of these, or no line at all.
    """
    found = []
    for number, line in enumerate(lines, 1):
        words = line.partition("#")[0].split()
        if not words:
            continue
        place = f"--hostfile {path!r}, line {number},"
        settings = dict(word.partition("=")[::2] for word in words[1:])
        slots = settings.get("slots")
        if slots is not None and ":" in words[0]:
            raise UsageError(
                f"{place} {_shown(line.strip())}: give the number of ranks once, as in 'host1 slots=8'"
            )
        found.append(_host(place, words[0] if slots is None else f"{words[0]}:{slots}"))
    if not found:
        raise UsageError(f"--hostfile {path!r} names no host; write a line such as 'host1 slots=8' for each")
    return _merged(found)


def _host(place: str, text: str) -> Host:
    name, colon, slots = text.strip().rpartition(":")
    if not colon:
        name, slots = slots, "1"
    if not name:
        raise UsageError(
            f"{place} {_shown(text)}: give a host's name and its number of ranks, as in 'host1:8'"
        )
    if not (slots.isascii() and slots.isdecimal()) or len(slots) > 9 or not 1 <= int(slots) <= MAX_RANKS:
        raise UsageError(
            f"{place} {_shown(text)}: after the colon, give a whole number from 1 to {MAX_RANKS}"
        )
    if not _NAME.fullmatch(name):
        raise UsageError(
            f"{place} {_shown(name)} is no name of a host: it may have letters, digits, '.', '-' and '_'"
        )
    return Host(name, int(slots))


def _merged(hosts: Iterable[Host]) -> list[Host]:
    slots: dict[str, int] = {}
    for host in hosts:
        slots[host.name] = slots.get(host.name, 0) + host.slots
    return [Host(name, count) for name, count in slots.items()]


def is_this_one(host: Host) -> bool:
    """Whether the name is one of this host's."""
    own = socket.gethostname()
    return host.name in {*_LOOPBACK, own, own.partition(".")[0]}


def address_of(host: Host) -> str:
    """Returns what the other hosts call this one: its name without a user's, and never localhost."""
    name = host.name.rpartition("@")[2].strip("[]")
    return socket.gethostname() if name in _LOOPBACK else name


def unknown(hosts: Iterable[Host]) -> list[str]:
    """Returns the names that have no address here. ssh may know them all the same, by its own settings."""
    names = []
    for host in hosts:
        try:
            socket.getaddrinfo(host.name.rpartition("@")[2].strip("[]"), None)
        except (OSError, UnicodeError):
            names.append(host.name)
    return names


def deal(hosts: Iterable[Host], num_ranks: int | None) -> list[Host]:
    """Returns the hosts with the ranks that each gets: the first ones are filled first.

    Args:
      hosts: the hosts with their slots.
      num_ranks: of the job; None for as many as there are slots.

    Raises:
      UsageError: if there are more ranks than slots.
    """
    named = list(hosts)
    slots = sum(host.slots for host in named)
    left = slots if num_ranks is None else num_ranks
    if left > slots:
        raise UsageError(
            f"-np {left}: the hosts have {slots} slots; name more hosts, or more ranks for each, "
            f"as in '-H {named[0].name}:{named[0].slots + left - slots}'"
        )
    dealt = []
    for host in named:
        count = min(host.slots, left)
        left -= count
        if count > 0:
            dealt.append(Host(host.name, count))
    return dealt

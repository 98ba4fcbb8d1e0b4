"""Notes that the ranks send to the launcher, each in a line of a FIFO in the job's directory.

A rank says that it joins the job, in `init()`, and that it leaves, when its script is over: long before its
process ends, since TensorFlow takes seconds for that. So the launcher knows the order in which the ranks
have failed. A rank that fails because another has, says which one. smddp/uncaught.py writes the lines.

A rank that is killed says nothing: then the end of its process counts.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import NamedTuple

VARIABLE = "SMDDP_LAUNCHER"  # the path of the FIFO, for the ranks
JOINS, LEAVES = "joins", "leaves"

_READ_BYTES = 1 << 16


class Note(NamedTuple):
    """A line, such as "joins 1", "leaves 1", or "leaves 0 1" of rank 0 that fails because of rank 1."""

    what: str
    rank: int
    because_of: int | None = None


def parse(data: bytes) -> Iterator[Note]:
    """Returns the notes in some bytes. Pure. Other lines are passed over: any process may have the path."""
    for line in data.splitlines():
        what, *numbers = line.decode("ascii", errors="replace").split() or [""]
        ranks = [int(number) for number in numbers if number.isdecimal() and len(number) < 9]
        if what in (JOINS, LEAVES) and len(ranks) == len(numbers) and len(ranks) in (1, 2):
            yield Note(what, *ranks)


class RankNotes:
    """The FIFO, from which the launcher reads."""

    def __init__(self, path: str) -> None:
        """Opens the FIFO, also for writing: without a writer it would always be ready, with nothing in it.

        Raises:
          OSError: there is none, or there are no descriptors left.
        """
        self.fd = os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)

    def read(self) -> list[Note]:
        """Returns what has arrived since the last call, in its order. A rank writes a line at once."""
        try:
            return list(parse(os.read(self.fd, _READ_BYTES)))
        except BlockingIOError:
            return []

    def close(self) -> None:
        """Closes the FIFO."""
        os.close(self.fd)

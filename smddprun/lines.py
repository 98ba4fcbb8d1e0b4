r"""Splits output into whole lines, tags them, and keeps the last lines of a rank. Pure.

A unit is a sequence of bytes up to and including "\n", "\r\n" or "\r", and is forwarded in one piece. A unit
that ends in "\r" is an update of a progress bar. A block is one or more whole units. Bytes are never decoded,
since output need not be text.
"""

from __future__ import annotations

import re
from collections import deque

# A longer line is forwarded in pieces of at least this size, and each piece becomes a line. This bounds the
# memory that a line takes.
MAX_LINE_BYTES = 1 << 20
# The part of a rank's output of which the summary shows an excerpt (excerpt.py).
TAIL_LINES = 100
TAIL_LINE_BYTES = 2000

# A unit of "\r" alone, with which tqdm begins a bar. It shows nothing, so it is removed.
_EMPTY_UPDATE = re.compile(rb"(?:\A|(?<=[\r\n]))\r(?!\n)")
_UNIT_END = re.compile(rb"(\r\n|\r(?!\n)|\n)(?=.)", re.DOTALL)
_FIRST_IS_UPDATE = re.compile(rb"[^\r\n]*\r(?!\n)")


class LineSplitter:
    """Turns the chunks that were read into blocks. The borders between chunks make no difference."""

    def __init__(self) -> None:
        """Creates a splitter that has read nothing."""
        self._partial = bytearray()

    def feed(self, chunk: bytes) -> bytes:
        r"""Adds a chunk of at least one byte.

        Returns:
          The units that are complete now, or b"". One with "\r" at the end of the chunk is not complete: the
          byte after it decides what it is.
        """
        end = max(chunk.rfind(b"\n"), chunk.rfind(b"\r", 0, -1)) + 1
        if end == 0 and not self._partial.endswith(b"\r"):
            self._partial += chunk
            return self._cut_long_line()
        block = bytes(self._partial) + chunk[:end]
        if b"\r" in block:
            block = _EMPTY_UPDATE.sub(b"", block)
        self._partial = bytearray(chunk[end:])
        return block + self._cut_long_line()

    def flush(self) -> bytes:
        """Returns the rest at the end of the output: a line or an update without its end, or b""."""
        rest = bytes(self._partial)
        self._partial.clear()
        return b"" if rest == b"\r" else rest

    def _cut_long_line(self) -> bytes:
        if len(self._partial) < MAX_LINE_BYTES:
            return b""
        piece = bytes(self._partial) + b"\n"
        self._partial.clear()
        return piece


def tag(block: bytes, prefix: bytes) -> bytes:
    """Puts `prefix` before each unit of the block. The last unit may lack its end."""
    if b"\r" not in block:
        return prefix + block[:-1].replace(b"\n", b"\n" + prefix) + block[-1:]
    return prefix + _UNIT_END.sub(lambda match: match[1] + prefix, block)


def begins_with_update(block: bytes) -> bool:
    """Returns whether the block's first unit is an update of a progress bar."""
    return _FIRST_IS_UPDATE.match(block) is not None


class Tail:
    """The last lines of a rank, of all its streams together, in the order of their arrival."""

    def __init__(self, limit: int = TAIL_LINES) -> None:
        """Creates an empty tail that keeps up to `limit` lines."""
        self._limit = limit
        self._lines: deque[bytes] = deque(maxlen=limit)
        self._updates: dict[str, bytes] = {}

    def add(self, stream: str, block: bytes) -> None:
        """Adds a result of `LineSplitter.feed` for a stream, or a last line without its end."""
        lines, newline, rest = block.rpartition(b"\n")
        if newline:
            self._updates.pop(stream, None)
            self._lines.extend(map(_as_seen, lines.rsplit(b"\n", self._limit)[-self._limit :]))
        if rest:
            self._updates[stream] = _as_seen(rest)

    def lines(self) -> list[bytes]:
        """Returns the last lines, oldest first, without their ends. A progress bar gives its last state."""
        return [*self._lines, *self._updates.values()][-self._limit :]


def _as_seen(line: bytes) -> bytes:
    """Returns the text that a terminal would show of a line, cut to TAIL_LINE_BYTES."""
    shown = line.rstrip(b"\r").rpartition(b"\r")[2]
    return shown if len(shown) <= TAIL_LINE_BYTES else shown[:TAIL_LINE_BYTES] + b"..."

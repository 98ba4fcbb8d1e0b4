r"""Bytes into whole lines, lines with tags, and the last lines of a rank. Pure: no files, no processes.

A unit is what is passed on in one piece: bytes up to and including "\n", "\r\n" or "\r". One that ends in
"\r" is an update of a progress bar. A block is one or more whole units. Bytes are never decoded: they need
not be text.
"""

from __future__ import annotations

import re
from collections import deque

# A line longer than this is passed on in pieces of at least this size, each made a line: memory stays
# bounded.
MAX_LINE_BYTES = 1 << 20
# The summary shows so much of a rank's output.
TAIL_LINES = 20
TAIL_LINE_BYTES = 2000

# "\r" as a unit of its own, as tqdm begins a bar with. It shows nothing, so it is left out.
_EMPTY_UPDATE = re.compile(rb"(?:\A|(?<=[\r\n]))\r(?!\n)")
_UNIT_END = re.compile(rb"(\r\n|\r(?!\n)|\n)(?=.)", re.DOTALL)
_FIRST_IS_UPDATE = re.compile(rb"[^\r\n]*\r(?!\n)")


class LineSplitter:
    """Collects chunks as they were read and hands out blocks. Where chunks were cut makes no difference."""

    def __init__(self) -> None:
        """Nothing has been read yet."""
        self._partial = bytearray()
        self._after_update = False

    def feed(self, chunk: bytes) -> tuple[bool, bytes]:
        r"""Adds a chunk of at least one byte.

        Returns:
          (closes, block). `closes`: the update that the last block ended with was half of a "\r\n"; its
          "\n" has come now and is not part of `block`. `block`: the units that are complete now, or b"".
        """
        closes = self._after_update and chunk[:1] == b"\n"
        if closes:
            chunk = chunk[1:]
        self._after_update = False
        if self._partial == b"\r":  # held back below: the byte after it tells what it is
            self._partial.clear()
            chunk = b"\r" + chunk
        end = max(chunk.rfind(b"\n"), chunk.rfind(b"\r")) + 1
        if end == 0:
            self._partial += chunk
            return closes, self._cut_long_line()
        block, rest = bytes(self._partial) + chunk[:end], chunk[end:]
        if not rest and (block == b"\r" or block.endswith((b"\r\r", b"\n\r"))):
            block, rest = block[:-1], b"\r"
        if b"\r" in block:
            block = _EMPTY_UPDATE.sub(b"", block)
        self._partial = bytearray(rest)
        self._after_update = not rest and block.endswith(b"\r")
        return closes, block + self._cut_long_line()

    def flush(self) -> bytes:
        """What is left at the end of the output: a line without its end, or b""."""
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
    """The block with `prefix` before each of its units (the last may lack its end)."""
    if b"\r" not in block:
        return prefix + block[:-1].replace(b"\n", b"\n" + prefix) + block[-1:]
    return prefix + _UNIT_END.sub(lambda match: match[1] + prefix, block)


def begins_with_update(block: bytes) -> bool:
    """Whether the block's first unit is an update of a progress bar."""
    return _FIRST_IS_UPDATE.match(block) is not None


class Tail:
    """The last lines of a rank: of all its streams together, in the order in which they came."""

    def __init__(self, limit: int = TAIL_LINES) -> None:
        """`limit`: lines to keep."""
        self._limit = limit
        self._lines: deque[bytes] = deque(maxlen=limit)
        self._updates: dict[str, bytes] = {}

    def add(self, stream: str, block: bytes, closes: bool = False) -> None:
        """Adds what `LineSplitter.feed` gave for a stream, or a last line without its end."""
        if closes:
            self._lines.append(self._updates.pop(stream, b""))
        lines, newline, rest = block.rpartition(b"\n")
        if newline:
            self._updates.pop(stream, None)
            self._lines.extend(map(_as_seen, lines.rsplit(b"\n", self._limit)[-self._limit :]))
        if rest:
            self._updates[stream] = _as_seen(rest)

    def lines(self) -> list[bytes]:
        """The last lines, oldest first, without their ends. A progress bar shows its last state only."""
        return [*self._lines, *self._updates.values()][-self._limit :]


def _as_seen(line: bytes) -> bytes:
    """What a terminal would show of a line: the text after the last update, cut to a bearable length."""
    shown = line.rstrip(b"\r").rpartition(b"\r")[2]
    return shown if len(shown) <= TAIL_LINE_BYTES else shown[:TAIL_LINE_BYTES] + b"..."

"""The launcher's output, which several ranks share: lines stay whole, and progress bars stay usable.

A sink is one destination of bytes. Stdout and stderr share a sink if they are the same file. There are two
kinds of sink with the same methods: one for a file or a pipe, and one for a terminal, which keeps rank 0's
unfinished line at the bottom and writes the lines of the other ranks above it.
"""

from __future__ import annotations

import os
from typing import Callable

from smddprun.lines import begins_with_update
from smddprun.writer import Writer

# The source of the launcher's own messages. Any other source is a rank.
LAUNCHER = -1

_CLEAR_LINE = b"\r\x1b[K"
_CLEAR_REST = b"\x1b[K"
# A longer unfinished line is not a progress bar, and is not redrawn.
_MAX_REDRAWN_BYTES = 4096


class PlainSink:
    """A file or a pipe. An update of a progress bar becomes a line when a line of another source follows."""

    is_terminal = False

    def __init__(self, writer: Writer) -> None:
        """Creates a sink that alone uses `writer`."""
        self.writer = writer
        self._source = LAUNCHER
        self._last = b"\n"  # the last byte written

    def block(self, source: int, block: bytes) -> None:
        """Writes whole units of one source.

        Args:
          source: a rank, or LAUNCHER.
          block: a block of `LineSplitter.feed`, tagged or not.
        """
        self._put(source, self._before(source, block) + block)

    def raw(self, source: int, data: bytes) -> None:
        """Writes bytes unchanged. The only rank of a job uses it, and rank 0 on a terminal."""
        self._put(source, data)

    def message(self, text: str) -> None:
        """Writes lines of the launcher."""
        self.block(LAUNCHER, os.fsencode(text) + b"\n")

    def _before(self, source: int, block: bytes) -> bytes:
        if self._last == b"\n" or (
            self._last == b"\r" and (self._source == source or begins_with_update(block))
        ):
            return b""
        return b"\n"

    def _put(self, source: int, data: bytes) -> None:
        self.writer.write(data)
        self._source, self._last = source, data[-1:]


class NoSink(PlainSink):
    """Shows nothing, for as long as the output would be wanted that it stands for."""

    def _put(self, source: int, data: bytes) -> None:
        """Drops the bytes."""


class TerminalSink(PlainSink):
    """A terminal. The unfinished line of the raw source is redrawn below the lines of other sources."""

    is_terminal = True

    def __init__(self, writer: Writer) -> None:
        """Creates a sink that alone uses `writer`."""
        super().__init__(writer)
        self._unfinished = b""

    def raw(self, source: int, data: bytes) -> None:
        """Writes bytes unchanged, and remembers those since the last end of a line."""
        self._put(source, data)
        text = self._unfinished + data
        # A "\r" at the end of a bar has only moved the cursor, so the bar is still visible.
        begin = max(text.rfind(b"\n"), text.rstrip(b"\r").rfind(b"\r")) + 1
        self._unfinished = text[begin:] if len(text) - begin <= _MAX_REDRAWN_BYTES else b""

    def block(self, source: int, block: bytes) -> None:
        """Writes whole units of one source, above the unfinished line if there is one. See `PlainSink`."""
        if self._unfinished:
            after = b"" if block.endswith(b"\n") else _CLEAR_LINE
            self._put(source, _CLEAR_LINE + block + after + self._unfinished)
        else:
            super().block(source, block)

    def _before(self, source: int, block: bytes) -> bytes:
        # A line that is written over an old update must clear the rest of it.
        return _CLEAR_REST if self._last == b"\r" else super()._before(source, block)


def same_file(fd: int, other: int) -> bool:
    """Whether two descriptors lead to the same file, pipe or terminal."""
    return os.path.sameopenfile(fd, other)


def open_sinks(wake: Callable[[], None]) -> dict[str, PlainSink]:
    """Returns the sinks of "stdout" and "stderr", which are one object if both are the same file."""
    sinks: dict[str, PlainSink] = {}
    for name, fd in (("stdout", 1), ("stderr", 2)):
        if name == "stderr" and same_file(1, 2):
            sinks[name] = sinks["stdout"]
        else:
            sinks[name] = (TerminalSink if os.isatty(fd) else PlainSink)(Writer(fd, wake))
    return sinks

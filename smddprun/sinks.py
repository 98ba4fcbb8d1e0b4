"""How several ranks share the launcher's output: lines stay whole, progress bars stay usable.

A sink stands for one place that bytes go to. Stdout and stderr are one sink when they are the same file.
There are two kinds, with the same methods: a plain one (file, pipe), and a terminal, where rank 0's
unfinished line is kept at the bottom while the other ranks' lines are written above it.
"""

from __future__ import annotations

import os
from typing import Callable

from smddprun.lines import begins_with_update
from smddprun.writer import Writer

# Source of the launcher's own messages; the others are rank numbers.
LAUNCHER = -1

_CLEAR_LINE = b"\r\x1b[K"
_CLEAR_REST = b"\x1b[K"
# An unfinished line longer than this is no progress bar, and is not drawn again.
_MAX_REDRAWN_BYTES = 4096


class PlainSink:
    """A file or a pipe. An update of a progress bar becomes a line once a line of another source follows."""

    is_terminal = False

    def __init__(self, writer: Writer) -> None:
        """`writer` takes what is written here, and nobody else's."""
        self.writer = writer
        self._source = LAUNCHER
        self._last = b"\n"  # the last byte written

    def block(self, source: int, block: bytes, closes: bool = False) -> None:
        r"""Writes whole units of one source.

        Args:
          source: rank, or LAUNCHER.
          block: as `LineSplitter.feed` hands it out, tagged or not; may be empty.
          closes: the source's last update ended in "\r\n", and this is its "\n".
        """
        if closes and self._source == source and self._last == b"\r":
            self._put(source, b"\n")
        if block:
            self._put(source, self._before(source, block) + block)

    def raw(self, source: int, data: bytes) -> None:
        """Writes a source's bytes as they are: for the only rank of a job, or the owner of the terminal."""
        self._put(source, data)

    def message(self, text: str) -> None:
        """Writes lines of the launcher itself."""
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


class TerminalSink(PlainSink):
    """A terminal. What a source wrote raw since its last line end is drawn again below the others' lines."""

    is_terminal = True

    def __init__(self, writer: Writer) -> None:
        """`writer` takes what is written here, and nobody else's."""
        super().__init__(writer)
        self._unfinished = b""

    def raw(self, source: int, data: bytes) -> None:
        """As in `PlainSink`; remembers what was written since the last line end."""
        self._put(source, data)
        text = self._unfinished + data
        # The "\r" that a bar ends with has moved the cursor only: the bar is still to be seen.
        begin = max(text.rfind(b"\n"), text.rstrip(b"\r").rfind(b"\r")) + 1
        self._unfinished = text[begin:] if len(text) - begin <= _MAX_REDRAWN_BYTES else b""

    def block(self, source: int, block: bytes, closes: bool = False) -> None:
        """As in `PlainSink`; above the unfinished line, if there is one."""
        if self._unfinished and block:
            after = b"" if block.endswith(b"\n") else _CLEAR_LINE
            self._put(source, _CLEAR_LINE + block + after + self._unfinished)
        else:
            super().block(source, block, closes)

    def _before(self, source: int, block: bytes) -> bytes:
        # Above an old update the line must not show its rest; other unfinished text is left to stand.
        return _CLEAR_REST if self._last == b"\r" else super()._before(source, block)


def same_file(fd: int, other: int) -> bool:
    """Whether two descriptors lead to the same file, pipe or terminal."""
    return os.path.sameopenfile(fd, other)


def open_sinks(wake: Callable[[], None]) -> dict[str, PlainSink]:
    """The sinks of this process's "stdout" and "stderr"; one object for both where they are the same file."""
    sinks: dict[str, PlainSink] = {}
    for name, fd in (("stdout", 1), ("stderr", 2)):
        if name == "stderr" and same_file(1, 2):
            sinks[name] = sinks["stdout"]
        else:
            sinks[name] = (TerminalSink if os.isatty(fd) else PlainSink)(Writer(fd, wake))
    return sinks

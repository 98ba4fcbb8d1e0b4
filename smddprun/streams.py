"""One output stream of one rank: it is read from a pipe or a terminal, and forwarded to its destinations."""

from __future__ import annotations

import contextlib
import fcntl
import os
import termios
from typing import BinaryIO, NamedTuple

from smddprun.lines import LineSplitter, Tail, tag
from smddprun.sinks import PlainSink

_READ_BYTES = 1 << 18
MAX_PIPE_BYTES = 1 << 20
_MIN_PIPE_BYTES = 64 << 10  # the default of Linux
# A quarter of the memory for the pipes of a user. Above the limit, new pipes of any program have only 8 KiB.
_ALL_PIPES_BYTES = 16 << 20
_F_SETPIPE_SZ = 1031  # fcntl.F_SETPIPE_SZ, which exists from Python 3.10 on


class Ends(NamedTuple):
    """The two ends of a channel: the launcher reads from `ours` without blocking, the rank writes."""

    ours: int
    rank_end: int


def open_pipe(num_pipes: int) -> Ends:
    """Opens one of `num_pipes` pipes, with room for a burst of output."""
    ours, rank_end = os.pipe()
    size = max(_MIN_PIPE_BYTES, min(MAX_PIPE_BYTES, _ALL_PIPES_BYTES // num_pipes))
    # The kernel refuses it above the user's limit on pipe memory. A pipe of the default size is a little
    # slower.
    with contextlib.suppress(OSError):
        fcntl.fcntl(ours, _F_SETPIPE_SZ, size)
    os.set_blocking(ours, False)
    return Ends(ours, rank_end)


def open_terminal(like: int) -> Ends:
    """Opens a pseudo-terminal that changes no bytes and has the window size of the terminal `like`."""
    ours, rank_end = os.openpty()
    attributes = termios.tcgetattr(rank_end)
    attributes[1] &= ~termios.OPOST  # the launcher's terminal turns "\n" into "\r\n", once
    attributes[3] &= ~termios.ECHO
    termios.tcsetattr(rank_end, termios.TCSANOW, attributes)
    copy_window_size(like, ours)
    os.set_blocking(ours, False)
    return Ends(ours, rank_end)


def copy_window_size(source: int, target: int) -> None:
    """Gives the terminal `target` the window size of the terminal `source`."""
    # It fails if one of the two has just been closed. Then the size no longer matters.
    with contextlib.suppress(OSError):
        size = fcntl.ioctl(source, termios.TIOCGWINSZ, b"\0" * 8)
        fcntl.ioctl(target, termios.TIOCSWINSZ, size)


class Stream:
    """Reads the output of a rank, and forwards it to a sink, the rank's last lines and an optional file."""

    def __init__(
        self,
        rank: int,
        name: str,
        fd: int,
        sink: PlainSink,
        tail: Tail,
        prefix: bytes | None,
        log: BinaryIO | None,
    ) -> None:
        """Creates a stream that owns `fd` and `log`.

        Args:
          rank: the rank that writes the output.
          name: "stdout" or "stderr".
          fd: the end from which the launcher reads.
          sink: the destination.
          tail: the rank's last lines.
          prefix: put before each line, or b"". None forwards bytes as they arrive, without waiting for whole
            lines.
          log: an unbuffered file that gets the same bytes as the rank has written, or None.
        """
        self.rank = rank
        self.fd = fd
        self.sink = sink
        self._name = name
        self._tail = tail
        self._prefix = prefix
        self._log = log
        self.log_name = str(log.name) if log else ""
        self._splitter = LineSplitter()
        self.log_error: OSError | None = None

    @property
    def wanted(self) -> bool:
        """Whether a destination still takes the output."""
        return self._log is not None or self.sink.writer.error is None

    def read(self) -> int:
        """Forwards the bytes that can be read without blocking, up to a limit.

        Returns:
          The number of bytes; 0 if the stream has ended; -1 if there is nothing to read at the moment.
        """
        try:
            chunk = os.read(self.fd, _READ_BYTES)
        except BlockingIOError:
            return -1
        except OSError:
            return 0  # EIO: no process has the pseudo-terminal open any more
        if chunk:
            self._forward(chunk)
        return len(chunk)

    def close(self) -> None:
        """Forwards a last line without its end, and closes. A rank that writes later gets SIGPIPE."""
        rest = self._splitter.flush()
        if rest:
            self._tail.add(self._name, rest)
            if self._prefix is not None:
                self.sink.block(self.rank, self._prefix + rest + b"\n")
        os.close(self.fd)
        if self._log is not None:
            self._log.close()

    def _forward(self, chunk: bytes) -> None:
        self._write_log(chunk)
        block = self._splitter.feed(chunk)
        self._tail.add(self._name, block)
        if self._prefix is None:
            self.sink.raw(self.rank, chunk)
        elif block:
            self.sink.block(self.rank, tag(block, self._prefix) if self._prefix else block)

    def _write_log(self, chunk: bytes) -> None:
        if self._log is None:
            return
        try:
            rest = memoryview(chunk)
            while rest:
                rest = rest[self._log.write(rest) :]
        except OSError as error:  # a full disk, for example, ends the log but not the job
            self.log_error = error
            self._log.close()
            self._log = None

"""One output stream of one rank: from the pipe or terminal that the rank writes to, to all who want it."""

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
_MIN_PIPE_BYTES = 64 << 10  # as they are
# A quarter of what a user's pipes may have before new ones, of any program, shrink to 8 KiB.
_ALL_PIPES_BYTES = 16 << 20
_F_SETPIPE_SZ = 1031  # Linux; Python has a name for it from 3.10 on


class Ends(NamedTuple):
    """Two ends of a channel: ours to read from, non-blocking, and the rank's to write to."""

    ours: int
    rank_end: int


def open_pipe(num_pipes: int) -> Ends:
    """One of `num_pipes` pipes, with room for a burst of output."""
    ours, rank_end = os.pipe()
    size = max(_MIN_PIPE_BYTES, min(MAX_PIPE_BYTES, _ALL_PIPES_BYTES // num_pipes))
    # Above this user's limit on pipe memory it is refused: the usual size does as well, a little slower.
    with contextlib.suppress(OSError):
        fcntl.fcntl(ours, _F_SETPIPE_SZ, size)
    os.set_blocking(ours, False)
    return Ends(ours, rank_end)


def open_terminal(like: int) -> Ends:
    """A pseudo-terminal with the window size of the terminal `like`, which passes bytes on unchanged."""
    ours, rank_end = os.openpty()
    attributes = termios.tcgetattr(rank_end)
    attributes[1] &= ~termios.OPOST  # "\n" becomes "\r\n" once, in the real terminal
    attributes[3] &= ~termios.ECHO
    termios.tcsetattr(rank_end, termios.TCSANOW, attributes)
    copy_window_size(like, ours)
    os.set_blocking(ours, False)
    return Ends(ours, rank_end)


def copy_window_size(source: int, target: int) -> None:
    """Gives the terminal `target` the window size of the terminal `source`."""
    # Fails when one of the two has just been closed; the size no longer matters then.
    with contextlib.suppress(OSError):
        size = fcntl.ioctl(source, termios.TIOCGWINSZ, b"\0" * 8)
        fcntl.ioctl(target, termios.TIOCSWINSZ, size)


class Stream:
    """Reads what a rank writes; passes it to a sink, to the rank's last lines, and to a file, if any."""

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
        """Takes over `fd` and `log`.

        Args:
          rank: whose output it is.
          name: "stdout" or "stderr".
          fd: our end; owned by the stream from here on.
          sink: where it goes.
          tail: the rank's last lines.
          prefix: before each line, b"" for whole lines without a tag; None: bytes go to the sink as they
            come.
          log: an unbuffered file for the bytes as the rank wrote them, or None. Owned by the stream.
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
        """Whether anyone still takes what this stream brings."""
        return self._log is not None or self.sink.writer.error is None

    def read(self) -> int:
        """Passes on what is there, up to a limit.

        Returns:
          Bytes read; 0 when the stream has ended; -1 when there is nothing at this moment.
        """
        try:
            chunk = os.read(self.fd, _READ_BYTES)
        except BlockingIOError:
            return -1
        except OSError:
            return 0  # EIO: the last process that had the pseudo-terminal open has ended
        if chunk:
            self._pass_on(chunk)
        return len(chunk)

    def close(self) -> None:
        """Passes on a last line without its end, and closes. A rank that writes later gets SIGPIPE."""
        rest = self._splitter.flush()
        if rest:
            self._tail.add(self._name, rest)
            if self._prefix is not None:
                self.sink.block(self.rank, self._prefix + rest + b"\n")
        os.close(self.fd)
        if self._log is not None:
            self._log.close()

    def _pass_on(self, chunk: bytes) -> None:
        self._write_log(chunk)
        closes, block = self._splitter.feed(chunk)
        self._tail.add(self._name, block, closes)
        if self._prefix is None:
            self.sink.raw(self.rank, chunk)
        elif block or closes:
            self.sink.block(self.rank, tag(block, self._prefix) if block and self._prefix else block, closes)

    def _write_log(self, chunk: bytes) -> None:
        if self._log is None:
            return
        try:
            rest = memoryview(chunk)
            while rest:
                rest = rest[self._log.write(rest) :]
        except OSError as error:  # the disk is full, say: the job is worth more than its log
            self.log_error = error
            self._log.close()
            self._log = None

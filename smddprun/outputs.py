"""The streams of all ranks: where each is written and in which style, and when reading pauses."""

from __future__ import annotations

import errno
import os
import selectors
import stat
from collections.abc import Mapping
from typing import BinaryIO, Callable, NamedTuple

from smddprun.environment import Place
from smddprun.lines import Tail
from smddprun.sinks import NoSink, PlainSink
from smddprun.streams import MAX_PIPE_BYTES, Ends, Stream, copy_window_size, open_pipe, open_terminal

_STANDARD_FD = {"stdout": 1, "stderr": 2}


class Style(NamedTuple):
    """The way in which one stream is forwarded."""

    prefix: bytes | None  # put before each whole line; None forwards bytes as they arrive
    terminal: bool  # the rank writes to a terminal, not to a pipe


def style(rank: int, num_ranks: int, tag_output: bool | None, to_terminal: bool, name: str = "") -> Style:
    """Returns the style of a rank's stream. Pure.

    Args:
      rank: the rank.
      num_ranks: the number of ranks on this host.
      tag_output: whether lines are tagged; None tags them if there are several ranks.
      to_terminal: whether the launcher's stream of the same name is a terminal.
      name: what stands in the tag; "" for the rank.
    """
    if to_terminal and rank == 0 and not tag_output:
        # Rank 0 uses the terminal as if there were no launcher, so progress bars work at full width.
        return Style(None, True)
    if tag_output or (tag_output is None and num_ranks > 1):
        return Style(f"[{name or rank}] ".encode(), False)
    return Style(b"" if num_ranks > 1 else None, False)


class LogError(Exception):
    """A file for the output of a rank cannot be opened. The text names the cause and the remedy."""


def open_log(path: str) -> BinaryIO:
    """Opens a file for writing, from its beginning. It does not wait, as for a FIFO without a reader.

    Raises:
      LogError: it cannot be opened, is a link, which may lead to any file, or is no regular file.
    """
    try:
        return open(path, "wb", buffering=0, opener=_open_without_waiting)  # the stream owns it
    except OSError as error:
        raise LogError(
            f"{path} can't be written: {error.strerror}; remove it, or name another --output-dir"
        ) from error


def _open_without_waiting(path: str, flags: int) -> int:
    fd = os.open(path, flags & ~os.O_TRUNC | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise OSError(errno.EINVAL, "it is no regular file")
    os.ftruncate(fd, 0)
    return fd


class Outputs:
    """The streams of all ranks of this host, and the sinks to which they are written."""

    def __init__(
        self,
        selector: selectors.BaseSelector,
        sinks: Mapping[str, PlainSink],
        num_ranks: int,
        tag_output: bool | None,
        output_dir: str | None,
        say: Callable[[str], None],
        quiet: bool = False,
    ) -> None:
        """Creates the outputs without opening a stream.

        Args:
          selector: of the main loop; each stream is registered with a callback as its data.
          sinks: of "stdout" and "stderr".
          num_ranks: see `style`.
          tag_output: see `style`.
          output_dir: an existing directory for the ranks' files, or None.
          say: shows a message to the user.
          quiet: only the output of rank 0 is shown.
        """
        self._quiet = quiet
        self._selector = selector
        self._sinks = sinks
        self._num_ranks = num_ranks
        self._tag_output = tag_output
        self._output_dir = output_dir
        self._say = say
        self._reported_loss = False
        self._log_is_cut_off = False
        self._streams: list[Stream] = []
        self._terminals: list[tuple[int, Stream]] = []  # (the launcher's terminal, the stream of rank 0)

    def open(self, place: Place, name: str, tail: Tail) -> int:
        """Opens a stream of a rank and starts to read from it.

        Args:
          place: the rank's.
          name: "stdout" or "stderr".
          tail: the rank's last lines.

        Returns:
          The descriptor to which the rank writes. The caller closes it.

        Raises:
          OSError: there are no more descriptors.
          LogError: the file in the output directory cannot be opened.
        """
        sink = self._sinks[name]
        rank = place.local_rank
        num_shown = 1 if self._quiet else self._num_ranks
        prefix, terminal = style(rank, num_shown, self._tag_output, sink.is_terminal, place.task)
        if self._quiet and rank > 0:
            sink = NoSink(sink.writer)
        log = None
        if self._output_dir is not None:
            path = os.path.join(self._output_dir, f"{place.name.replace(' ', '-')}.{name}")
            log = open_log(path)
        ends: Ends = open_terminal(_STANDARD_FD[name]) if terminal else open_pipe(2 * self._num_ranks)
        stream = Stream(rank, name, ends.ours, sink, tail, prefix, log)
        if terminal:
            self._terminals.append((_STANDARD_FD[name], stream))
        self._streams.append(stream)
        self._listen(stream)
        return ends.rank_end

    def start(self) -> None:
        """Starts to write. Call it after the last fork."""
        for writer in self._writers():
            writer.start()

    def turn(self) -> None:
        """Pauses streams whose output is too slow, resumes them, and ends those that nobody reads any more.

        The main loop calls it after each of its turns.
        """
        for writer in self._writers():
            writer.start()
            if not writer.paused and writer.backlog_bytes > writer.HIGH_BYTES:
                writer.paused = True
                self._each_stream_of(writer, lambda stream: self._selector.unregister(stream.fd))
            # This comes after `paused` is set, since the writer wakes the main loop only from then on.
            if writer.paused and writer.backlog_bytes < writer.LOW_BYTES:
                writer.paused = False
                self._each_stream_of(writer, self._listen)
        self._report_loss()
        for stream in list(self._streams):
            if stream.log_error:
                self._say(f"can't write {stream.log_name}: {stream.log_error.strerror}; the file ends here")
                stream.log_error = None
                self._log_is_cut_off = True
            if not stream.wanted:
                # The rank gets SIGPIPE at its next write, as it does without a launcher.
                self._end(stream)

    def window_changed(self) -> None:
        """Gives rank 0's terminal the new size of the launcher's."""
        for fd, stream in self._terminals:
            if stream in self._streams:
                copy_window_size(fd, stream.fd)

    def drain(self) -> None:
        """Forwards the rest of all streams and closes them. A process that still writes gets SIGPIPE."""
        for stream in list(self._streams):
            left = MAX_PIPE_BYTES  # a process that still writes would keep this loop going for ever
            while left > 0 and (count := stream.read()) > 0:
                left -= count
            self._end(stream)

    def finish(self) -> bool:
        """Waits until all output is written. Returns False if some was lost."""
        for writer in self._writers():  # stderr comes last, since a loss of stdout is reported there
            writer.finish()
            self._report_loss()
        return not (self._log_is_cut_off or any(writer.loss for writer in self._writers()))

    @property
    def paused(self) -> bool:
        """Whether the ranks' output is not read at the moment, because the launcher's is not."""
        return any(writer.paused for writer in self._writers())

    def _report_loss(self) -> None:
        loss = self._sinks["stdout"].writer.loss
        if loss and not self._reported_loss and self._sinks["stderr"] is not self._sinks["stdout"]:
            self._reported_loss = True
            self._say(f"can't write stdout: {loss.strerror}; the output from here on is lost")

    def _writers(self) -> list:
        return list({id(sink): sink.writer for sink in self._sinks.values()}.values())

    def _each_stream_of(self, writer: object, action: Callable[[Stream], object]) -> None:
        for stream in self._streams:
            if stream.sink.writer is writer:
                action(stream)

    def _listen(self, stream: Stream) -> None:
        self._selector.register(stream.fd, selectors.EVENT_READ, lambda: self._read(stream))

    def _read(self, stream: Stream) -> None:
        if stream.read() == 0:
            self._end(stream)

    def _end(self, stream: Stream) -> None:
        self._streams.remove(stream)
        if not stream.sink.writer.paused:
            self._selector.unregister(stream.fd)
        stream.close()

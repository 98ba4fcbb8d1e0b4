"""Writes to one of the launcher's own outputs without ever making the main loop wait.

The reader of our output may be slow or stopped (a pager, Ctrl-S). A write would then block, and signals,
deaths and time limits with it. Setting O_NONBLOCK is no way out: the flag belongs to the terminal, which
others share. So each output has a thread that writes. The main loop stops reading from the ranks while too
much is waiting.
"""

from __future__ import annotations

import contextlib
import errno
import os
import select
import threading
from typing import Callable


class Writer:
    """A queue of bytes and the thread that empties it into a file descriptor. For one producer thread."""

    # The producer should stop above the first, and go on below the second.
    HIGH_BYTES = 4 << 20
    LOW_BYTES = 1 << 20

    def __init__(self, fd: int, wake: Callable[[], None]) -> None:
        """Writes nothing before `start`.

        Args:
          fd: where to write; stays open.
          wake: called from the thread after a write that the producer waits for, and when the output has
            broken.
        """
        self._fd = fd
        self._wake = wake
        self._changed = threading.Condition()
        self._queue: list[bytes] = []
        self._finishing = False
        self._thread: threading.Thread | None = None
        self.backlog_bytes = 0
        self.paused = False  # set by the producer; asks for `wake`
        self.error: OSError | None = None

    @property
    def loss(self) -> OSError | None:
        """Why something could not be written; None also when the reader has left, who wants no more."""
        gone = (errno.EPIPE, errno.EIO) if os.isatty(self._fd) else (errno.EPIPE,)
        return None if self.error is None or self.error.errno in gone else self.error

    def start(self) -> None:
        """Starts the thread, unless it runs; what was written before has waited.

        After the last fork: the two clash. While the ranks have all threads that there may be, it does
        nothing and is to be called again.
        """
        if self._thread is not None:
            return
        thread = threading.Thread(target=self._run, name=f"smddprun-writer-{self._fd}", daemon=True)
        with contextlib.suppress(RuntimeError):
            thread.start()
            self._thread = thread

    def write(self, data: bytes) -> None:
        """Queues the data. Never blocks; drops it when the output has broken."""
        with self._changed:
            if data and not self.error:
                self._queue.append(data)
                self.backlog_bytes += len(data)
                self._changed.notify()

    def finish(self) -> None:
        """Returns when everything is written or the output has broken. Nothing may be written after."""
        self.start()
        with self._changed:
            self._finishing = True
            self._changed.notify()
        if self._thread is not None:
            self._thread.join()
        else:
            self._run()

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._queue and not self._finishing:
                    self._changed.wait()
                data = b"".join(self._queue)
                self._queue.clear()
            if not data:
                return
            try:
                self._write_all(data)
            except OSError as error:
                # The reader is gone (EPIPE), the terminal hung up (EIO), the disk is full: who writes must
                # know.
                with self._changed:
                    self.error = error
                    self._queue.clear()
                    self.backlog_bytes = 0
                self._wake()
                return
            with self._changed:
                self.backlog_bytes -= len(data)
            if self.paused:
                self._wake()

    def _write_all(self, data: bytes) -> None:
        rest = memoryview(data)
        while rest:
            try:
                rest = rest[os.write(self._fd, rest) :]
            except BlockingIOError:  # someone who shares the output has set O_NONBLOCK
                select.select([], [self._fd], [])

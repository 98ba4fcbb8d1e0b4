"""Writes to one of the launcher's own outputs without blocking the main loop.

The reader of an output may be slow or stopped (a pager, Ctrl-S), and then a write blocks. The main loop must
not block, since it handles signals, the ends of ranks and time limits. O_NONBLOCK does not help, because the
flag belongs to the terminal, which other programs share. So a thread writes to each output. The main loop
stops reading from the ranks while too many bytes are queued.
"""

from __future__ import annotations

import contextlib
import errno
import os
import select
import threading
from typing import Callable


class Writer:
    """A queue of bytes, and a thread that writes them to a file descriptor. Only one thread may produce."""

    # The producer should pause above HIGH_BYTES, and resume below LOW_BYTES.
    HIGH_BYTES = 4 << 20
    LOW_BYTES = 1 << 20

    def __init__(self, fd: int, wake: Callable[[], None]) -> None:
        """Creates a writer that writes nothing before `start`.

        Args:
          fd: the output; the writer does not close it.
          wake: called from the thread after each write while `paused` is set, and when a write has failed.
        """
        self._fd = fd
        self._wake = wake
        self._changed = threading.Condition()
        self._queue: list[bytes] = []
        self._finishing = False
        self._thread: threading.Thread | None = None
        self.backlog_bytes = 0
        self.paused = False  # set by the producer, which waits for `wake`
        self.error: OSError | None = None

    @property
    def loss(self) -> OSError | None:
        """The error by which output was lost. It is None if the reader has closed its end."""
        gone = (errno.EPIPE, errno.EIO) if os.isatty(self._fd) else (errno.EPIPE,)
        return None if self.error is None or self.error.errno in gone else self.error

    def start(self) -> None:
        """Starts the thread, unless it runs. It writes first what is queued already.

        Call it after the last fork, since fork() copies only one thread. If the limit of threads is reached,
        it does nothing, and must be called again.
        """
        if self._thread is not None:
            return
        thread = threading.Thread(target=self._run, name=f"smddprun-writer-{self._fd}", daemon=True)
        with contextlib.suppress(RuntimeError):
            thread.start()
            self._thread = thread

    def write(self, data: bytes) -> None:
        """Queues the data without blocking. After a failed write the data is dropped."""
        with self._changed:
            if data and not self.error:
                self._queue.append(data)
                self.backlog_bytes += len(data)
                self._changed.notify()

    def finish(self) -> None:
        """Waits until everything is written or a write has failed. `write` must not be called after it."""
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
                # The reader has gone (EPIPE), the terminal was hung up (EIO), or the disk is full. The
                # producer must stop.
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
            except BlockingIOError:  # another program that shares the output has set O_NONBLOCK
                select.select([], [self._fd], [])

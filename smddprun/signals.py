"""Turns signals to the launcher into events of the main loop: their numbers are written into a pipe."""

from __future__ import annotations

import ctypes
import os
import signal

_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None)

# The signals that would end the launcher.
STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
_HANDLED = (*STOPPING, signal.SIGUSR1, signal.SIGUSR2, signal.SIGTSTP, signal.SIGCONT, signal.SIGWINCH)


def _noop(number: int, frame: object) -> None:
    """Does nothing: Python's C handler has written the number to the wakeup descriptor already."""


class SignalPipe:
    """The signals that have arrived, and a way to wake the main loop from a thread. One for each process."""

    def __init__(self) -> None:
        """Opens the pipe. Signals arrive in it from `install` on."""
        self.fd, self._write_end = os.pipe()
        os.set_blocking(self.fd, False)
        os.set_blocking(self._write_end, False)

    def install(self) -> None:
        """Installs the handlers. A signal that was ignored, as by nohup, stays so here and in the ranks."""
        signal.set_wakeup_fd(self._write_end, warn_on_full_buffer=False)
        taken = [number for number in _HANDLED if signal.getsignal(number) is not signal.SIG_IGN]
        # SIGCHLD is taken even if it was ignored, because the kernel would then reap the ranks itself.
        taken.append(signal.SIGCHLD)
        for number in taken:
            signal.signal(number, _noop)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, taken)

    def wake(self) -> None:
        """Makes the main loop turn once. Any thread may call it."""
        try:
            os.write(self._write_end, b"\0")
        except BlockingIOError:
            return  # the pipe is full, so the main loop wakes anyway

    def read(self) -> list[int]:
        """Returns the signals that have arrived since the last call, oldest first."""
        try:
            return [number for number in os.read(self.fd, 4096) if number]
        except BlockingIOError:
            return []

    @staticmethod
    def suspend() -> None:
        """Stops this process until SIGCONT arrives, as SIGTSTP does by default.

        It does nothing in the first process of a container or of a session, which no shell could continue.
        """
        signal.signal(signal.SIGTSTP, signal.SIG_DFL)
        signal.raise_signal(signal.SIGTSTP)
        signal.signal(signal.SIGTSTP, _noop)

    @staticmethod
    def restore_stopping() -> None:
        """Restores the default action of the signals that stop the launcher, which has no more ranks."""
        for number in STOPPING:
            if signal.getsignal(number) is _noop:
                signal.signal(number, signal.SIG_DFL)


def end_with_parent(number: int) -> None:
    """Has the kernel send this process a signal when its parent ends."""
    _libc.prctl(_PR_SET_PDEATHSIG, number)


def ignore_all() -> None:
    """Ignores all signals that the launcher handles. The guard calls it, which must outlive the launcher."""
    signal.set_wakeup_fd(-1)
    for number in _HANDLED:
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)

"""Signals to the launcher, as events for the main loop: a handler only writes the number into a pipe."""

from __future__ import annotations

import os
import signal

# What would end the launcher, and the two that users give a meaning of their own.
STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
_HANDLED = (*STOPPING, signal.SIGUSR1, signal.SIGUSR2, signal.SIGTSTP, signal.SIGCONT, signal.SIGWINCH)


def _noop(number: int, frame: object) -> None:
    """Python's C handler has written the number to the wakeup descriptor already."""


class SignalPipe:
    """The signals that have arrived, and a way to wake the main loop from a thread. One per process."""

    def __init__(self) -> None:
        """Opens the pipe; `install` makes signals arrive in it."""
        self.fd, self._write_end = os.pipe()
        os.set_blocking(self.fd, False)
        os.set_blocking(self._write_end, False)

    def install(self) -> None:
        """Takes over the signals. One that was ignored (by nohup, say) stays so, here and in the ranks."""
        signal.set_wakeup_fd(self._write_end, warn_on_full_buffer=False)
        taken = [number for number in _HANDLED if signal.getsignal(number) is not signal.SIG_IGN]
        # SIGCHLD always: while it is ignored, the kernel leaves no zombies.
        taken.append(signal.SIGCHLD)
        for number in taken:
            signal.signal(number, _noop)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, taken)

    def wake(self) -> None:
        """Makes the main loop turn once. Any thread."""
        try:
            os.write(self._write_end, b"\0")
        except BlockingIOError:
            return  # full, so it turns anyway

    def read(self) -> list[int]:
        """The numbers of the signals that have come since the last call, oldest first."""
        try:
            return [number for number in os.read(self.fd, 4096) if number]
        except BlockingIOError:
            return []

    @staticmethod
    def suspend() -> None:
        """Does what SIGTSTP does by default: stops this process until SIGCONT comes.

        Or nothing, where no shell could continue it: as the first process of a container or of a session.
        """
        signal.signal(signal.SIGTSTP, signal.SIG_DFL)
        signal.raise_signal(signal.SIGTSTP)
        signal.signal(signal.SIGTSTP, _noop)

    @staticmethod
    def restore_stopping() -> None:
        """Makes signals end this process at once again: for when there is nothing left to look after."""
        for number in STOPPING:
            if signal.getsignal(number) is _noop:
                signal.signal(number, signal.SIG_DFL)


def ignore_all() -> None:
    """For the guard, which ends when the launcher does and not before."""
    signal.set_wakeup_fd(-1)
    for number in _HANDLED:
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)

"""Starts a job again when it fails: `--max-restarts`.

Each try is a launcher of its own, a fork of this process, which starts the ranks as it does without the
option. So a try leaves nothing to the next one, and it works for ranks on this host and on several ones.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import traceback
from typing import Any, Callable

from smddprun import signals, summary

COUNT = "SMDDP_RESTART_COUNT"  # how often the job was started again, for the ranks

# What another try would not change: a mistake on the command line, and a command that cannot be executed or
# is not there. After the time limit there is no time left.
_FINAL = (2, 126, 127, summary.TIMEOUT_CODE)

_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None)


def run(most: int, launch: Callable[[], int]) -> int:
    """Launches the job, and again while it fails, `most` times more at most.

    Args:
      most: how often it may be started again.
      launch: starts the job and returns the launcher's exit code. It runs in a child process.

    Returns:
      The exit code of the last try. A signal to stop is passed on, and ends the job for good.
    """
    supervisor = _Supervisor()
    for count in range(most + 1):
        code = supervisor.run(launch, count)
        if code in (0, *_FINAL) or supervisor.stopped or count == most:
            break
        print(
            f"smddprun: the job has failed, exit code {code}; start {count + 1} of {most} again",
            file=sys.stderr,
        )
    return code


class _Supervisor:
    """Has one child at a time, and passes signals on to it."""

    def __init__(self) -> None:
        self.stopped = False
        self._child = 0
        for number in (*signals.STOPPING, signal.SIGUSR1, signal.SIGUSR2, signal.SIGWINCH):
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, self._pass_on)

    def run(self, launch: Callable[[], int], count: int) -> int:
        """Runs `launch` in a child and returns its exit code, as a shell gives it."""
        mine = os.getpid()
        # The child must not die of a signal before it has handlers, and this process must know its child.
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, signals.STOPPING)
        self._child = os.fork()
        if self._child == 0:
            code = 1
            try:
                _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)  # the ranks end with the launcher, too
                for number in (*signals.STOPPING, signal.SIGUSR1, signal.SIGUSR2, signal.SIGWINCH):
                    if signal.getsignal(number) == self._pass_on:
                        signal.signal(number, _default_of(number))
                os.environ[COUNT] = str(count)
                signal.pthread_sigmask(signal.SIG_SETMASK, mask)
                code = launch() if os.getppid() == mine else 1
            except BaseException:
                traceback.print_exc()
            finally:
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(code)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        _, status = os.waitpid(self._child, 0)
        self._child = 0
        code = os.waitstatus_to_exitcode(status)
        return code if code >= 0 else 128 - code

    def _pass_on(self, number: int, frame: object) -> None:
        self.stopped = self.stopped or number in signals.STOPPING
        if self._child:
            os.kill(self._child, number)


def _default_of(number: int) -> Any:
    return signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL

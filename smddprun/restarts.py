"""Starts a job again when it fails: `--max-restarts`.

Each try is a launcher of its own, a fork of this process, which starts the ranks as it does without the
option. So a try leaves nothing to the next one, and it works for ranks on this host and on several ones.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
import traceback
from typing import Any, Callable

from smddprun import signals, summary
from smddprun.lost_hosts import Watch

COUNT = "SMDDP_RESTART_COUNT"  # how often the job was started again, for the ranks

# Another try would not change these: a mistake on the command line, and a command that cannot be executed or
# is not there. After the time limit there is no time left.
_FINAL = (2, 126, 127, summary.TIMEOUT_CODE)
_HOST_LOST = 1  # the exit code of a start that lost a host
_TURN_SECONDS = 0.5  # how soon the end of the child is noticed in a job of several hosts
_ENDING_SECONDS = 5.0  # of MPI's launcher, when it is told to end
_PASSED_ON = (*signals.STOPPING, signal.SIGUSR1, signal.SIGUSR2, signal.SIGWINCH)


def run(most: int, launch: Callable[[], int], watch: Watch | None = None) -> int:
    """Launches the job, and again while it fails, `most` times more at most.

    Args:
      most: how often it may be started again.
      launch: starts the job and returns the launcher's exit code. It runs in a child process.
      watch: notices that a host is lost, in a job of several hosts.

    Returns:
      The exit code of the last try. A signal to stop is passed on, and ends the job for good.
    """
    supervisor = _Supervisor(watch)
    code = supervisor.run(launch, 0)
    for count in range(1, most + 1):
        if code in (0, *_FINAL) or supervisor.stopped:
            break
        print(
            f"smddprun: the job has failed, exit code {code}; start {count} of {most} again", file=sys.stderr
        )
        supervisor.wait(pause_seconds(count))
        code = supervisor.run(launch, count)
    return code


def pause_seconds(count: int) -> float:
    """Returns the pause before start `count`: none before the first, then twice the last one, up to 30 s.

    A job that fails at once, for a reason that stays, would otherwise keep the machine busy with starts.
    """
    return 0.0 if count == 1 else min(30.0, 0.5 * 2.0 ** min(count - 2, 10))


class _Supervisor:
    """Has one child at a time, and passes signals on to it."""

    def __init__(self, watch: Watch | None) -> None:
        self.stopped = 0  # the signal that has told this process to stop
        self._watch = watch
        self._child = 0
        for number in _PASSED_ON:
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, self._pass_on)

    def wait(self, seconds: float) -> None:
        """Waits for some time, or until a signal to stop."""
        until = time.monotonic() + seconds
        while not self.stopped and (left := until - time.monotonic()) > 0:
            # A signal that comes just before the wait is noticed after it, so it is short.
            time.sleep(min(left, 0.2))

    def run(self, launch: Callable[[], int], count: int) -> int:
        """Runs `launch` in a child and returns its exit code, as a shell gives it."""
        mine = os.getpid()
        if self._watch is not None:
            self._watch.begin()
        # The child must not die of a signal before it has handlers, and this process must know its child.
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, signals.STOPPING)
        if self.stopped:  # between two tries
            return 128 + self.stopped
        self._child = os.fork()
        if self._child == 0:
            code = 1
            try:
                signals.end_with_parent(signal.SIGTERM)  # it ends the ranks then
                for number in _PASSED_ON:
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
        lost = self._watch is not None and self._end_when_a_host_is_lost(self._watch)
        _, status = os.waitpid(self._child, 0)
        self._child = 0
        if lost:  # MPI's launcher may return anything then
            return _HOST_LOST
        code = os.waitstatus_to_exitcode(status)
        return code if code >= 0 else 128 - code

    def _child_has_ended(self) -> bool:
        """Whether the child is there to be reaped."""
        return os.waitid(os.P_PID, self._child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None

    def _end_when_a_host_is_lost(self, watch: Watch) -> bool:
        """Waits for the end of the child, MPI's launcher, and ends it if a host is lost.

        By itself it would wait for that host for a quarter of an hour.

        Returns:
          Whether a host is lost.
        """
        import psutil

        lost = None
        while lost is None:
            if self._child_has_ended():
                return False
            lost = watch.turn(_TURN_SECONDS)
        print(
            f"smddprun: host {lost} is lost: no sign of life for {watch.limit:g} s; the job is ended",
            file=sys.stderr,
        )
        # The ranks of this host may outlive MPI's launcher. Those of other hosts end with it.
        launcher = psutil.Process(self._child)
        processes = [launcher, *launcher.children(recursive=True)]
        until = time.monotonic() + _ENDING_SECONDS
        for send in (psutil.Process.terminate, psutil.Process.kill):
            for process in processes:
                with contextlib.suppress(psutil.NoSuchProcess):
                    send(process)
            while not self._child_has_ended() and time.monotonic() < until:
                time.sleep(0.1)
        return True

    def _pass_on(self, number: int, frame: object) -> None:
        if number in signals.STOPPING:
            self.stopped = self.stopped or number
        if self._child:
            with contextlib.suppress(ProcessLookupError):  # it has just ended
                os.kill(self._child, number)


def _default_of(number: int) -> Any:
    return signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL

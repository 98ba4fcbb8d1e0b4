"""A rank as a process: how it is started, signalled, and how its end is learnt without reaping it.

Note [a dead rank stays a zombie]: the engine's peers learn why a rank died from the state, exit code and
signal in its /proc/<pid>/stat. So a rank that has ended is looked at with WNOWAIT only, and reaped when all
others have ended. This also keeps its pid, which is its process group's id, from being given to anyone else
while we may still signal it.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from typing import Callable, NamedTuple

from smddprun.environment import Place
from smddprun.lines import Tail

_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None)


class Exit(NamedTuple):
    """How a process ended: with an exit code, or by a signal (then `signal` is not 0)."""

    code: int = 0
    signal: int = 0

    @property
    def ok(self) -> bool:
        """Whether it succeeded."""
        return self.code == 0 and self.signal == 0

    @property
    def shell_code(self) -> int:
        """As a shell gives it: 128 + signal for a process that a signal ended."""
        return 128 + self.signal if self.signal else self.code

    def __str__(self) -> str:
        """As in 'exit code 3' or 'killed by SIGKILL'."""
        return f"killed by {signal_name(self.signal)}" if self.signal else f"exit code {self.code}"


def signal_name(number: int) -> str:
    """As in 'SIGKILL' for 9, or 'signal 40' for one without a name."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _before_exec(launcher: int, announce: Callable[[int], None]) -> None:
    # In the child: the kernel kills it when the launcher dies, however that happens. The launcher may have
    # died before this call, and then nobody would tell.
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != launcher:
        os.kill(os.getpid(), signal.SIGKILL)
    announce(os.getpid())


class Rank:
    """One rank of this host, from its start to its end. Its process leads a session and a process group."""

    def __init__(self, place: Place, tail: Tail) -> None:
        """Not started yet. `tail` keeps the last lines of its output."""
        self.place = place
        self.tail = tail
        self.exit: Exit | None = None
        self.ended_at: float | None = None
        self.ended_by: int = 0  # the signal by which the launcher made it end
        self.pid = 0  # while it is not started
        self.pidfd: int | None = None
        self._process: subprocess.Popen | None = None

    @property
    def running(self) -> bool:
        """Started, and not known to have ended."""
        return self._process is not None and self.exit is None

    def start(
        self,
        command: Sequence[str],
        environ: Mapping[str, str],
        stdin: int | None,
        stdout: int,
        stderr: int,
        announce: Callable[[int], None],
    ) -> None:
        """Starts the process. Call from the main thread only, and before there are others.

        The kernel ties the child's life to the thread that started it, and fork() copies one thread only.

        Args:
          command: the words to execute; the first is a path.
          environ: the complete environment.
          stdin: a descriptor, or None for the launcher's own.
          stdout: a descriptor; the caller closes it.
          stderr: the same.
          announce: called with the rank's pid, in the new process, before it becomes the command.

        Raises:
          OSError: it can't be started.
        """
        launcher = os.getpid()
        self._process = subprocess.Popen(
            command,
            env=environ,
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            start_new_session=True,
            preexec_fn=lambda: _before_exec(launcher, announce),
            close_fds=False,  # ours close on exec; those that we were given, as by `smddprun cat <(…)`, go on
        )
        self.pid = self._process.pid
        # Refused by old kernels and some sandboxes; then SIGCHLD makes the main loop look.
        if hasattr(os, "pidfd_open"):
            try:
                self.pidfd = os.pidfd_open(self.pid)
            except OSError:
                self.pidfd = None

    def look(self) -> bool:
        """Whether the process has ended; sets `exit` then. Leaves the zombie."""
        result = os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        if result is None:
            return False
        killed = result.si_code != os.CLD_EXITED
        self.exit = Exit(signal=result.si_status) if killed else Exit(code=result.si_status)
        return True

    def send(self, number: int) -> None:
        """Sends a signal to the rank's process group, which may outlive the rank."""
        try:
            os.killpg(self.pid, number)
        except (ProcessLookupError, PermissionError):
            # Nobody left in the group, or only programs that now run as another user: nothing we could do
            # about it.
            return

    def reap(self) -> None:
        """Lets the zombie go. See Note [a dead rank stays a zombie]."""
        if self._process is not None and self.exit is not None:
            self._process.wait()
        if self.pidfd is not None:
            os.close(self.pidfd)
            self.pidfd = None

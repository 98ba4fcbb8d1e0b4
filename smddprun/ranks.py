"""A rank as a process: starting it, signalling it, and learning its end without reaping it.

Note [a dead rank stays a zombie]: the engines of the other ranks read from /proc/<pid>/stat why a rank died.
So the end of a rank is read with WNOWAIT, and it is reaped only when all others have ended. Until then its
pid, which is also the id of its process group, cannot be reused, so the launcher may still signal the group.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from typing import Callable, NamedTuple

from smddprun.environment import Place
from smddprun.lines import Tail
from smddprun.signals import end_with_parent


class Exit(NamedTuple):
    """The end of a process: its exit code, or the signal that ended it. Otherwise `signal` is 0."""

    code: int = 0
    signal: int = 0

    @property
    def ok(self) -> bool:
        """Whether it succeeded."""
        return self.code == 0 and self.signal == 0

    @property
    def shell_code(self) -> int:
        """The exit code that a shell gives: 128 + signal for a process that a signal ended."""
        return 128 + self.signal if self.signal else self.code

    def __str__(self) -> str:
        """Returns a text such as 'exit code 3' or 'killed by SIGKILL'."""
        return f"killed by {signal_name(self.signal)}" if self.signal else f"exit code {self.code}"


def signal_name(number: int) -> str:
    """Returns 'SIGKILL' for 9, and 'signal 40' for a signal without a name."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _before_exec(launcher: int, announce: Callable[[int], None]) -> None:
    # This runs in the child. From now on, the kernel kills the child when the launcher dies. If the launcher
    # has died before that, the parent is another process already.
    end_with_parent(signal.SIGKILL)
    if os.getppid() != launcher:
        os.kill(os.getpid(), signal.SIGKILL)
    announce(os.getpid())


class Rank:
    """One rank of this host. Its process leads a session and a process group."""

    def __init__(self, place: Place, tail: Tail) -> None:
        """Creates a rank without starting it. `tail` keeps the last lines of its output."""
        self.place = place
        self.tail = tail
        self.exit: Exit | None = None
        self.left_at: float | None = None  # when it said that it leaves, or its process ended without a word
        self.because_of: int | None = None  # the rank because of which it fails, if it has named one
        self.ended_by: int = 0  # the signal by which the launcher ended it, or 0
        self.pid = 0  # 0 before the start
        self.pidfd: int | None = None
        self._process: subprocess.Popen | None = None

    @property
    def running(self) -> bool:
        """Whether it has been started and is not known to have ended."""
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
        """Starts the process. Call it from the main thread, and before there are other threads.

        The kernel ties the child's life to the thread that started it, and fork() copies only one thread.

        Args:
          command: the words to execute; the first is a path.
          environ: the complete environment.
          stdin: a descriptor, or None for the launcher's own.
          stdout: a descriptor; the caller closes it.
          stderr: a descriptor; the caller closes it.
          announce: called with the rank's pid, in the new process, before that executes the command.

        Raises:
          OSError: the process cannot be started.
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
            # Inherited descriptors, as in `smddprun cat <(…)`, are the rank's. The launcher's own close on
            # exec.
            close_fds=False,
        )
        self.pid = self._process.pid
        # Old kernels and some sandboxes refuse pidfds. Then SIGCHLD makes the main loop poll the ranks.
        if hasattr(os, "pidfd_open"):
            try:
                self.pidfd = os.pidfd_open(self.pid)
            except OSError:
                self.pidfd = None

    def poll(self) -> bool:
        """Returns whether the process has ended, and sets `exit` then. It does not reap the process."""
        result = os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        if result is None:
            return False
        killed = result.si_code != os.CLD_EXITED
        self.exit = Exit(signal=result.si_status) if killed else Exit(code=result.si_status)
        return True

    def send(self, number: int) -> None:
        """Sends a signal to the rank's process group, which may have members after the rank has ended."""
        try:
            os.killpg(self.pid, number)
        except (ProcessLookupError, PermissionError):
            # No process is left in the group, or only processes of another user.
            return

    def reap(self) -> None:
        """Reaps the process. See Note [a dead rank stays a zombie]."""
        if self._process is not None and self.exit is not None:
            self._process.wait()
        if self.pidfd is not None:
            os.close(self.pidfd)
            self.pidfd = None

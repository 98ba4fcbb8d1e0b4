"""Processes of a job that outlive its ranks: helpers in the background, daemons, children of a killed shell.

They are found by the job's id in their environment, wherever they are in the process tree, and by the
sessions of the ranks. Only a process that has both cleared its environment and started its own session is not
found.
"""

from __future__ import annotations

import os
from collections.abc import Container, Sequence

import psutil

from smddprun.environment import belongs_to_job
from smddprun.escalation import SIGNALS, Escalation, Step

# The name of a guard in ps and top. The guard of an inner job still has to clean up when that job's launcher
# has ended, and then ends by itself, so a sweep does not signal it.
GUARD_NAME = "smddprun-guard"

_POLL_SECONDS = 0.05
_MOST_LISTED = 10


def find(job_id: str, sessions: Container[int]) -> list[psutil.Process]:
    """Returns the running processes of the job, except this process.

    Args:
      job_id: the value of SMDDP_JOB_ID.
      sessions: ids of the ranks' sessions, which are the ranks' pids.
    """
    own = os.getpid()
    return [p for p in psutil.process_iter() if p.pid != own and _belongs(p, job_id, sessions)]


def _belongs(process: psutil.Process, job_id: str, sessions: Container[int]) -> bool:
    try:
        try:
            # Another user's process is only the job's if it is in a rank's session: root may read the
            # environments of all, and anybody may put the job's id into his own.
            ours = process.uids().real == os.getuid() and belongs_to_job(process.environ(), job_id)
        except psutil.AccessDenied:
            ours = False
        ours = ours or os.getsid(process.pid) in sessions
        return ours and process.status() != psutil.STATUS_ZOMBIE
    except (psutil.Error, OSError):
        return False  # it has ended meanwhile


def _send(process: psutil.Process, number: int) -> None:
    try:
        process.send_signal(number)  # psutil checks that the pid has not been reused
    except (psutil.NoSuchProcess, psutil.AccessDenied):
        return  # it has ended, or belongs to another user; the next turn shows which


def _is_guard(process: psutil.Process) -> bool:
    try:
        return process.name() == GUARD_NAME
    except psutil.Error:
        return False  # it has ended


def describe(process: psutil.Process) -> str:
    """Returns a text such as '1234 (python worker.py)', at most about 90 characters long."""
    try:
        command = " ".join(process.cmdline()) or process.name()
    except psutil.Error:
        return str(process.pid)
    # The name that a process gives itself may hold control sequences of terminals.
    command = "".join(each if each.isprintable() else "?" for each in command[:81])
    return f"{process.pid} ({command if len(command) <= 80 else command[:77] + '...'})"


def listed(descriptions: Sequence[str]) -> str:
    """Returns the first descriptions, and how many there are more."""
    more = len(descriptions) - _MOST_LISTED
    return ", ".join(descriptions[:_MOST_LISTED]) + (f" and {more} more" if more > 0 else "")


class Sweep:
    """Ends all processes of a job, in short turns, between which the caller can do other work.

    Each turn lists the processes anew, because a process may start another one before it ends. The sweep is
    over when two turns in succession find none: one listing misses a process that starts after the list was
    read, if its parent ends before the parent is examined.
    """

    def __init__(self, job_id: str, sessions: Container[int], escalation: Escalation) -> None:
        """Creates a sweep, without a signal to any process.

        Args:
          job_id: see `find`.
          sessions: see `find`.
          escalation: the times of the signals; `begin` has been called.
        """
        self._job_id = job_id
        self._sessions = sessions
        self._escalation = escalation
        self._number = 0
        self._sent: set[tuple[int, int]] = set()  # (pid, signal)
        self._found_none = False
        self.next_turn = 0.0  # an earlier turn does nothing
        self.signalled: list[str] = []  # descriptions of the processes that got a signal
        self.remaining: list[psutil.Process] = []

    def turn(self, now: float) -> bool:
        """Lists and signals the processes once, if it is time. Returns whether the sweep is over.

        It is over when no process is left, or when those that are left survive SIGKILL.
        """
        if now < self.next_turn:
            return False
        self.next_turn = now + _POLL_SECONDS
        self.remaining = find(self._job_id, self._sessions)
        if not self.remaining and self._found_none:
            return True
        self._found_none = not self.remaining
        step = self._escalation.due(now)
        if step is Step.GIVE_UP:
            return True
        if step is not None:
            self._number = SIGNALS[step]
        for process in self.remaining if self._number else ():
            if (process.pid, self._number) not in self._sent and not _is_guard(process):
                if all(pid != process.pid for pid, _ in self._sent):
                    self.signalled.append(describe(process))
                self._sent.add((process.pid, self._number))
                _send(process, self._number)
        return False

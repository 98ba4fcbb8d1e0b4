"""Processes of a job that outlive its ranks: helpers in the background, daemons, children of a killed shell.

They are known by the job's id in their environment, wherever they have moved in the process tree, and by the
sessions of the ranks, should they have cleared their environment. Only a process that did both, cleared its
environment and began a session of its own, is not found.
"""

from __future__ import annotations

import os
from collections.abc import Container

import psutil

from smddprun.environment import belongs_to_job
from smddprun.escalation import SIGNALS, Escalation, Step

# As ps and top show the guard of a job. That of a job inside this one still has something to clear up when
# its launcher has ended, and then ends by itself.
GUARD_NAME = "smddprun-guard"

_POLL_SECONDS = 0.05


def find(job_id: str, sessions: Container[int]) -> list[psutil.Process]:
    """Living processes of the job, this process not among them.

    Args:
      job_id: as in SMDDP_JOB_ID.
      sessions: ids of the ranks' sessions, which are the ranks' pids.
    """
    own = os.getpid()
    return [p for p in psutil.process_iter() if p.pid != own and _belongs(p, job_id, sessions)]


def _belongs(process: psutil.Process, job_id: str, sessions: Container[int]) -> bool:
    try:
        try:
            ours = belongs_to_job(process.environ(), job_id)
        except psutil.AccessDenied:
            ours = False  # another user's; the session may still be ours
        ours = ours or os.getsid(process.pid) in sessions
        return ours and process.status() != psutil.STATUS_ZOMBIE
    except (psutil.Error, OSError):
        return False  # it has ended while we looked


def _send(process: psutil.Process, number: int) -> None:
    try:
        process.send_signal(number)  # psutil makes sure that the pid was not given to another meanwhile
    except (psutil.NoSuchProcess, psutil.AccessDenied):
        return  # ended by itself, or not ours to end; the next look shows which


def _is_guard(process: psutil.Process) -> bool:
    try:
        return process.name() == GUARD_NAME
    except psutil.Error:
        return False  # it has ended


def describe(process: psutil.Process) -> str:
    """As in '1234 (python worker.py)', with the command cut to a bearable length."""
    try:
        command = " ".join(process.cmdline()) or process.name()
    except psutil.Error:
        return str(process.pid)
    return f"{process.pid} ({command if len(command) <= 80 else command[:77] + '...'})"


class Sweep:
    """Ends all processes of a job, in small turns, so that the caller can do other things in between.

    It looks again at every turn, because a process that is being ended may have started another. For the same
    reason it is over only when two looks in succession find none: a process that begins after the list of
    processes was read, and whose parent ends before it is looked at, is not seen by one look.
    """

    def __init__(self, job_id: str, sessions: Container[int], escalation: Escalation) -> None:
        """Signals nobody yet.

        Args:
          job_id: as for `find`.
          sessions: as for `find`.
          escalation: when to signal; begun.
        """
        self._job_id = job_id
        self._sessions = sessions
        self._escalation = escalation
        self._number = 0
        self._signalled: set[tuple[int, int]] = set()
        self._found_none = False
        self.next_look = 0.0  # when the next turn is worth while
        self.told: list[str] = []  # descriptions of the processes that got a signal
        self.remaining: list[psutil.Process] = []

    def turn(self, now: float) -> bool:
        """Looks and signals once, if it is time. Returns whether it is over: none left, or none that go."""
        if now < self.next_look:
            return False
        self.next_look = now + _POLL_SECONDS
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
            if (process.pid, self._number) not in self._signalled and not _is_guard(process):
                if all(pid != process.pid for pid, _ in self._signalled):
                    self.told.append(describe(process))
                self._signalled.add((process.pid, self._number))
                _send(process, self._number)
        return False

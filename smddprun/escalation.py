"""The times at which processes that should end get SIGTERM and SIGKILL. Pure: the caller has the clock."""

from __future__ import annotations

import enum
import signal


class Step(enum.IntEnum):
    """The steps, in their order."""

    TERMINATE = 1  # send SIGTERM
    KILL = 2  # send SIGKILL
    GIVE_UP = 3  # stop waiting: a process that survives SIGKILL is stuck in the kernel


SIGNALS = {Step.TERMINATE: signal.SIGTERM, Step.KILL: signal.SIGKILL}

# The time for which a process waits for a core does not count, up to this limit: see `Escalation.due`.
MOST_STARVED_SECONDS = 60.0
# Less time than this does not move a deadline.
_LEAST_STARVED_SECONDS = 0.1


class Escalation:
    """A schedule of the steps, with a waiting time before each."""

    def __init__(self, after_terminate: float = 5.0, after_kill: float = 10.0) -> None:
        """Creates a schedule in which nothing is due before `begin` or `hasten`.

        Args:
          after_terminate: seconds between SIGTERM and SIGKILL.
          after_kill: seconds between SIGKILL and giving up.
        """
        self._after_terminate = after_terminate
        self._after_kill = after_kill
        self._next: Step | None = None
        self._allowance = MOST_STARVED_SECONDS
        self._starved = 0.0  # seconds of it that the deadline has been moved for
        self.deadline: float | None = None  # of the next step; None before the first and after the last

    def begin(self, now: float, wait_seconds: float) -> None:
        """Makes SIGTERM due after `wait_seconds`. A second call changes nothing."""
        if self._next is None:
            self._next, self.deadline = Step.TERMINATE, now + wait_seconds

    def hasten(self, now: float, step: Step) -> None:
        """Makes `step` due now, unless that step or a later one has been due already."""
        if self._next is None or (self.deadline is not None and self._next <= step):
            self._next, self.deadline = step, now
            if step is Step.KILL:
                self._allowance = 0.0

    def postpone(self, now: float, wait_seconds: float) -> None:
        """Makes SIGTERM due no earlier than `wait_seconds` from now, unless it has been due already."""
        if self._next is Step.TERMINATE and self.deadline is not None:
            self.deadline = max(self.deadline, now + wait_seconds)

    def due(self, now: float, starved: float = 0.0) -> Step | None:
        """Returns the step that is due, or None. Each step is returned once.

        On a machine with much load, a process may get no CPU time, and can then neither run its handler of
        SIGTERM nor end after SIGKILL. So the time for which it is starved moves the deadlines after SIGTERM,
        unless `hasten` has made SIGKILL due.

        Args:
          now: the time.
          starved: the seconds since SIGTERM for which a process that should end was ready to run, but other
            processes had the cores.
        """
        if self.deadline is None or now < self.deadline:
            return None
        step = self._next
        more = min(starved, self._allowance) - self._starved
        if step is not Step.TERMINATE and more >= _LEAST_STARVED_SECONDS:
            self._starved += more
            self.deadline += more
            if now < self.deadline:
                return None
        if step is Step.TERMINATE:
            self._next, self.deadline = Step.KILL, now + self._after_terminate
        elif step is Step.KILL:
            self._next, self.deadline = Step.GIVE_UP, now + self._after_kill
        else:
            self.deadline = None
        return step

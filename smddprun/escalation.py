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


class Escalation:
    """A schedule of the steps, with a waiting time before each."""

    # On a machine with much load, a process may need many seconds to run its handler, and even to be killed.
    def __init__(self, after_terminate: float = 10.0, after_kill: float = 30.0) -> None:
        """Creates a schedule in which nothing is due before `begin` or `hasten`.

        Args:
          after_terminate: seconds between SIGTERM and SIGKILL.
          after_kill: seconds between SIGKILL and giving up.
        """
        self._after_terminate = after_terminate
        self._after_kill = after_kill
        self._next: Step | None = None
        self.deadline: float | None = None  # of the next step; None before the first and after the last

    def begin(self, now: float, wait_seconds: float) -> None:
        """Makes SIGTERM due after `wait_seconds`. A second call changes nothing."""
        if self._next is None:
            self._next, self.deadline = Step.TERMINATE, now + wait_seconds

    def hasten(self, now: float, step: Step) -> None:
        """Makes `step` due now, unless that step or a later one has been due already."""
        if self._next is None or (self.deadline is not None and self._next <= step):
            self._next, self.deadline = step, now

    def postpone(self, now: float, wait_seconds: float) -> None:
        """Makes SIGTERM due no earlier than `wait_seconds` from now, unless it has been due already."""
        if self._next is Step.TERMINATE and self.deadline is not None:
            self.deadline = max(self.deadline, now + wait_seconds)

    def due(self, now: float) -> Step | None:
        """Returns the step that is due, or None. Each step is returned once."""
        if self.deadline is None or now < self.deadline:
            return None
        step = self._next
        if step is Step.TERMINATE:
            self._next, self.deadline = Step.KILL, now + self._after_terminate
        elif step is Step.KILL:
            self._next, self.deadline = Step.GIVE_UP, now + self._after_kill
        else:
            self.deadline = None
        return step

"""When processes that should end are asked, told and forced to. Pure: the caller has clock and signals."""

from __future__ import annotations

import enum
import signal


class Step(enum.IntEnum):
    """What is due, in this order."""

    TERMINATE = 1  # send SIGTERM
    KILL = 2  # send SIGKILL
    GIVE_UP = 3  # not even that has helped: stop waiting


SIGNALS = {Step.TERMINATE: signal.SIGTERM, Step.KILL: signal.SIGKILL}


class Escalation:
    """Steps with time between them: nothing, then SIGTERM, then SIGKILL, then no more patience."""

    def __init__(self, after_terminate: float = 5.0, after_kill: float = 10.0) -> None:
        """Nothing is due until `begin` or `hasten`.

        Args:
          after_terminate: seconds between SIGTERM and SIGKILL.
          after_kill: seconds between SIGKILL and giving up.
        """
        self._after_terminate = after_terminate
        self._after_kill = after_kill
        self._next: Step | None = None
        self.deadline: float | None = None  # when the next step is due; None: not begun, or over

    def begin(self, now: float, wait_seconds: float) -> None:
        """Starts with SIGTERM after `wait_seconds`. Changes nothing if it has begun already."""
        if self._next is None:
            self._next, self.deadline = Step.TERMINATE, now + wait_seconds

    def hasten(self, now: float, step: Step) -> None:
        """Makes `step` due now, unless it or a later one has been due already."""
        if self._next is None or (self.deadline is not None and self._next <= step):
            self._next, self.deadline = step, now

    def put_off(self, now: float, wait_seconds: float) -> None:
        """Lets SIGTERM be due after `wait_seconds`, unless it has been due already."""
        if self._next is Step.TERMINATE:
            self.deadline = now + wait_seconds

    def due(self, now: float) -> Step | None:
        """The step that is due, once; None while there is none."""
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

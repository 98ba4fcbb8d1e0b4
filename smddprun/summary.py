"""What the launcher says at the end of a job that did not succeed, and its exit code. Pure."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from typing import NamedTuple

from smddprun.ranks import Exit, signal_name

TIMEOUT_CODE = 124  # as timeout(1)
# More ranks than this are counted, not listed.
_MAX_LISTED = 16

_HINTS: dict[int, str] = {
    signal.SIGKILL: "SIGKILL that nobody sent comes from the kernel when memory runs out: "
    "look for 'Out of memory' in dmesg",
    signal.SIGSEGV: "a crash in native code: run it with -x PYTHONFAULTHANDLER=1 to see where Python was",
    signal.SIGABRT: "a failed check in native code: its message is among the lines above",
    signal.SIGBUS: "often a full disk or memory limit under a mapped file",
}


class Ended(NamedTuple):
    """How one rank ended. `exit` is None for one that even SIGKILL could not end."""

    rank: int
    pid: int
    exit: Exit | None
    seconds: float  # from the start of the job
    ended_by: int = 0  # the launcher's signal that made it end, or 0
    tail: Sequence[bytes] = ()

    @property
    def failed(self) -> bool:
        """Whether it did not succeed."""
        return self.exit is None or not self.exit.ok

    @property
    def shell_code(self) -> int:
        """As a shell gives it; what could not be killed counts as killed."""
        return (self.exit or Exit(signal=signal.SIGKILL)).shell_code


class Outcome(NamedTuple):
    """A job that has ended. `ended` is in the order in which the ranks ended."""

    ended: Sequence[Ended]
    stopped_by: int = 0  # the signal that the launcher was told to stop with, or 0
    timeout: float | None = None  # the limit, if the job was ended for it

    @property
    def first_failed(self) -> Ended | None:
        """The rank that all else follows from: the first to fail that the launcher hadn't told to end."""
        return next((e for e in self.ended if e.failed and not e.ended_by), None)

    @property
    def exit_code(self) -> int:
        """The launcher's exit code."""
        if self.first_failed:
            return self.first_failed.shell_code
        if self.timeout is not None:
            return TIMEOUT_CODE
        # Without a rank that failed by itself, ranks were told to end by the user only.
        return Exit(signal=self.stopped_by).shell_code if any(e.failed for e in self.ended) else 0

    @property
    def merely_stopped(self) -> bool:
        """Whether the ranks ended because of the signal to stop, so that there is no failure to explain."""
        if not self.stopped_by:
            return False
        first = self.first_failed
        return first is None or first.shell_code == 128 + self.stopped_by


def lines(outcome: Outcome) -> list[bytes]:
    """The summary without line ends; nothing for a job that succeeded. Bytes, as output need not be text."""
    if outcome.exit_code == 0:
        return []
    first = outcome.first_failed
    result: list[bytes] = []
    if outcome.timeout is not None:
        result.append(_own(f"the job ran longer than --timeout {outcome.timeout:g} seconds and was ended"))
    if outcome.stopped_by:
        result.append(_own(f"the job was told to stop by {signal_name(outcome.stopped_by)}"))
    if first and not outcome.merely_stopped:
        result += _first_failure(first)
    others = [e for e in outcome.ended if e.failed and (outcome.merely_stopped or e is not first)]
    result += [_own(_other(e, first)) for e in others[:_MAX_LISTED]]
    if len(others) > _MAX_LISTED:
        result.append(_own(f"... and {len(others) - _MAX_LISTED} ranks more"))
    result.append(_own(f"exit code {outcome.exit_code}"))
    return result


def _own(text: str) -> bytes:
    return b"smddprun: " + text.encode()


def _first_failure(first: Ended) -> list[bytes]:
    result = [
        _own(f"rank {first.rank} failed first: pid {first.pid}, {first.exit}, after {first.seconds:.1f} s")
    ]
    if first.tail:
        result.append(_own(f"the last lines of rank {first.rank}:"))
        result += [b"  | " + line for line in first.tail]
    else:
        result.append(_own(f"rank {first.rank} had written nothing"))
    if first.exit and first.exit.signal in _HINTS:
        result.append(_own(_HINTS[first.exit.signal]))
    return result


def _other(ended: Ended, first: Ended | None) -> str:
    who = f"rank {ended.rank} (pid {ended.pid})"
    if ended.exit is None:
        return (
            f"{who} does not end, not even by SIGKILL: it is stuck in the kernel (see its files and devices)"
        )
    if ended.ended_by:
        return f"{who} was ended by smddprun with {signal_name(ended.ended_by)}"
    if first is None or ended is first:
        return f"{who} ended: {ended.exit}"
    return f"{who} ended {max(0.0, ended.seconds - first.seconds):.1f} s later: {ended.exit}"

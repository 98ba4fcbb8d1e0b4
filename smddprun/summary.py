"""The launcher's report at the end of a job that did not succeed, and its exit code. Pure."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from typing import NamedTuple

from smddprun.excerpt import excerpt, explains
from smddprun.ranks import Exit, signal_name

TIMEOUT_CODE = 124  # as timeout(1)
# If there are more ranks than this, the rest is only counted.
_MAX_LISTED = 16

_HINTS: dict[int, str] = {
    signal.SIGKILL: "the kernel sends SIGKILL when memory runs out: look for 'Out of memory' in dmesg",
    signal.SIGSEGV: "native code has crashed: run with -x PYTHONFAULTHANDLER=1 to see where Python was",
    signal.SIGABRT: "a check in native code has failed: its message is among the lines above",
    signal.SIGBUS: "mapped memory could not be provided: often a disk or a memory limit is full",
}


class Ended(NamedTuple):
    """The end of one rank. `exit` is None for a rank that survived SIGKILL."""

    rank: int
    pid: int
    exit: Exit | None
    seconds: float  # from the start of the job
    ended_by: int = 0  # the signal by which the launcher ended it, or 0
    tail: Sequence[bytes] = ()
    because_of: int | None = None  # the rank because of which it says that it fails
    task: str = ""  # see `environment.Place`

    @property
    def name(self) -> str:
        """What the launcher calls it."""
        return self.task or f"rank {self.rank}"

    @property
    def failed(self) -> bool:
        """Whether it did not succeed."""
        return self.exit is None or not self.exit.ok

    @property
    def shell_code(self) -> int:
        """The exit code that a shell gives. A rank that survived SIGKILL counts as killed."""
        return (self.exit or Exit(signal=signal.SIGKILL)).shell_code


class Outcome(NamedTuple):
    """A job that has ended. `ended` is in the order in which the ranks left it."""

    ended: Sequence[Ended]
    stopped_by: int = 0  # the signal that told the launcher to stop, or 0
    timeout: float | None = None  # the limit, if the job was ended because of it

    @property
    def first_failed(self) -> Ended | None:
        """The rank from which the other failures follow; None if all were ended by the launcher.

        The order alone is not enough: when an op fails on one rank, all learn of it at the same time. So from
        the first in the order, the way goes on to the rank that it names, while that has failed as well. That
        may be one which took so long to end that the launcher has ended it.
        """
        failed = {e.rank: e for e in self.ended if e.failed}
        first = found = self._first_by_itself
        seen = set()
        while found is not None and found.because_of in failed:
            if found.rank in seen:
                return first  # they name each other
            seen.add(found.rank)
            found = failed[found.because_of]
        return found

    @property
    def _first_by_itself(self) -> Ended | None:
        return next((e for e in self.ended if e.failed and not e.ended_by), None)

    @property
    def exit_code(self) -> int:
        """The launcher's exit code."""
        first = self.first_failed
        if first is not None and first.ended_by:
            first = self._first_by_itself
        if first is not None:
            return first.shell_code
        if self.timeout is not None:
            return TIMEOUT_CODE
        # No rank failed by itself, so the ranks that failed were stopped by the user.
        return Exit(signal=self.stopped_by).shell_code if any(e.failed for e in self.ended) else 0

    @property
    def merely_stopped(self) -> bool:
        """Whether the ranks ended only because of the signal to stop, so that no failure needs a report."""
        if not self.stopped_by:
            return False
        first = self.first_failed
        return first is None or first.shell_code == 128 + self.stopped_by


def lines(outcome: Outcome) -> list[bytes]:
    """Returns the lines of the report; none for a job that succeeded. They are bytes, as output is."""
    if outcome.exit_code == 0:
        return []
    first = outcome.first_failed
    result: list[bytes] = []
    if outcome.timeout is not None:
        result.append(_own(f"the job ran longer than --timeout {outcome.timeout:g} seconds and was ended"))
    if outcome.stopped_by:
        result.append(_own(f"the job was told to stop by {signal_name(outcome.stopped_by)}"))
    if first and not outcome.merely_stopped:
        result += _first_failure(first, outcome.ended)
    others = [e for e in outcome.ended if e.failed and (outcome.merely_stopped or e is not first)]
    result += [_own(_other(e, first)) for e in others[:_MAX_LISTED]]
    if len(others) > _MAX_LISTED:
        result.append(_own(f"... and {len(others) - _MAX_LISTED} ranks more"))
    result.append(_own(f"exit code {outcome.exit_code}"))
    return result


def _own(text: str) -> bytes:
    return b"smddprun: " + text.encode()


def _first_failure(first: Ended, ended: Sequence[Ended]) -> list[bytes]:
    end = f"ended by smddprun with {signal_name(first.ended_by)}" if first.ended_by else str(first.exit)
    result = [_own(f"{first.name} failed first: pid {first.pid}, {end}, after {first.seconds:.1f} s")]
    # As with fewer batches. Others may fail for that before its process is at its end.
    # A task that ends because the first one has failed ends well, which says nothing.
    well = next((e for e in ended if not e.failed and not e.ended_by and not e.task), None)
    if well is not None and ended.index(well) < ended.index(first):
        result.append(_own(f"{well.name} had ended before, {well.exit}, after {well.seconds:.1f} s"))
    elif well is not None:
        result.append(_own(_other(well, first)))
    if not first.tail:
        result.append(_own(f"{first.name} wrote no output"))
    texts = [e for e in [first, *ended] if e.failed and e.tail]
    # Another may say why: of a rank that has not failed, or of one that smddprun has ended before it could.
    if first.because_of is not None or first.ended_by:
        texts.sort(key=lambda e: not explains(e.tail))
    shown = next(iter(texts), None)
    if shown is not None:
        result.append(_own(f"the last lines of {shown.name}:"))
        result += [b"  | " + line for line in excerpt(shown.tail)]
    if first.exit and first.exit.signal in _HINTS and not first.ended_by:
        result.append(_own(_HINTS[first.exit.signal]))
    return result


def _other(ended: Ended, first: Ended | None) -> str:
    name = f"{ended.name} (pid {ended.pid})"
    if ended.exit is None:
        return (
            f"{name} has not ended after SIGKILL: it is stuck in the kernel, or gets no CPU time; "
            f"see /proc/{ended.pid}/status and /proc/{ended.pid}/stack"
        )
    if ended.ended_by:
        return f"{name} was ended by smddprun with {signal_name(ended.ended_by)}"
    if first is None or first.ended_by or ended is first:
        return f"{name} ended: {ended.exit}"
    return f"{name} ended {max(0.0, ended.seconds - first.seconds):.1f} s later: {ended.exit}"

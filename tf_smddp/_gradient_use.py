"""Notices gradients that are never reduced, or twice: mistakes that give wrong or slow training, not errors.

All is known while Python builds or runs the step, so a step that is traced once costs nothing later.
"""

from __future__ import annotations

import warnings
from typing import Any, FrozenSet, Sequence

from tf_smddp import _runtime
from tf_smddp._conversion import unwrapped

_WRAP = "Wrap the optimizer in DistributedOptimizer, or the tape in DistributedGradientTape"


class _Seen:
    """What this process has done since init()."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        self.reduced = False  # something: an allreduce, or a reduce-scatter
        self.broadcast = False  # variables
        self.warned_of_never = self.warned_of_twice = False
        # The variables of which a DistributedGradientTape has reduced the gradients last, by id.
        self.by_tape: FrozenSet[int] = frozenset()


_seen = _Seen()


def note_reduction() -> None:
    """Notes that an op was made that reduces tensors."""
    _seen.reduced = True


def note_broadcast() -> None:
    """Notes that variables were broadcast, as they are before a training."""
    _seen.broadcast = True


def note_tape(sources: Sequence[Any]) -> None:
    """Notes that a DistributedGradientTape has reduced the gradients of these sources."""
    _seen.by_tape = frozenset(id(unwrapped(source)) for source in sources)


def warn_if_reduced_by_tape(variables: Sequence[Any]) -> None:
    """Warns, once, if a tape has reduced the gradients that an optimizer is about to reduce.

    Args:
        variables: those of the optimizer's step.
    """
    twice = bool(variables) and _seen.by_tape.issuperset(id(unwrapped(each)) for each in variables)
    _seen.by_tape = frozenset()
    if twice and not _seen.warned_of_twice and _runtime.rank() == 0:
        _seen.warned_of_twice = True
        warnings.warn(
            "DistributedOptimizer reduces gradients that DistributedGradientTape has reduced before: an "
            "average takes twice the time, and a sum is too large by a factor of size(). Use one of the two.",
            stacklevel=2,
        )


def warn_if_never_reduced(caller: str, what: str) -> None:
    """Warns, once, if nothing has been reduced until now, so that each rank trains by itself.

    Args:
        caller: what has noticed it.
        what: what has been done by now, for the warning.
    """
    if _seen.reduced or _seen.warned_of_never or _runtime.size() == 1 or _runtime.rank() != 0:
        return
    _seen.warned_of_never = True
    warnings.warn(
        f"{caller}: {what}, but no gradient was reduced: each of the {_runtime.size()} ranks has trained a "
        f"model of its own. {_WRAP}. If nothing was to be trained, ignore this.",
        stacklevel=2,
    )


def _at_shutdown() -> None:
    if _seen.broadcast:
        warn_if_never_reduced("tf_smddp", "variables were broadcast and the job has ended")


_runtime.before_shutdown.append(_at_shutdown)
_runtime.at_shutdown.append(_seen.forget)

"""Notices gradients that are never reduced, or twice: mistakes that give wrong or slow training, not errors.

All is known while Python builds or runs the step, so a step that is traced once costs nothing later.
"""

from __future__ import annotations

import warnings
import weakref
from typing import Any, Sequence

import tensorflow as tf

from tf_smddp import _runtime
from tf_smddp._conversion import unwrapped
from tf_smddp._reduce_op import ReduceOp

_WRAP = "Wrap the optimizer in DistributedOptimizer, or the tape in DistributedGradientTape"


class _Seen:
    """What this process has done since init()."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        self.reduced = False  # gradients, or what may be some
        self.broadcast = False  # variables
        self.warned_of_never = self.warned_of_twice = False
        # The variables of which a DistributedGradientTape has reduced gradients, by id.
        self.by_tape: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()


_seen = _Seen()


def note_gradients() -> None:
    """Notes that gradients are reduced, by a tape or an optimizer."""
    _seen.reduced = True


def note_users(tensors: Sequence[tf.Tensor], reduce_op: ReduceOp) -> None:
    """Notes that a user's script reduces tensors, which may be gradients: sums or averages of such numbers.

    What is reduced for other purposes calls none of these functions: the statistics of
    SyncBatchNormalization, averages of metrics, numbers by which ranks agree.
    """
    if reduce_op in (ReduceOp.SUM, ReduceOp.AVERAGE):
        _seen.reduced |= any(each.dtype.is_floating or each.dtype.is_complex for each in tensors)


def note_broadcast() -> None:
    """Notes that variables were broadcast, as they are before a training."""
    _seen.broadcast = True


def note_tape(sources: Sequence[Any], gradients: Sequence[Any]) -> None:
    """Notes that a DistributedGradientTape has reduced these gradients; None where there is none."""
    for source, gradient in zip(map(unwrapped, sources), gradients):
        if gradient is not None and isinstance(source, tf.Variable):
            _seen.by_tape[id(source)] = source


def warn_if_reduced_by_tape(variables: Sequence[Any]) -> None:
    """Warns, once, if tapes have reduced gradients that an optimizer is about to reduce.

    Args:
        variables: those of the optimizer's step.
    """
    twice = [each for each in map(unwrapped, variables) if id(each) in _seen.by_tape]
    if twice and not _seen.warned_of_twice and _runtime.rank() == 0:
        _seen.warned_of_twice = True
        warnings.warn(
            "DistributedOptimizer reduces gradients that DistributedGradientTape has reduced before (first "
            f"{twice[0].name!r}): an average takes twice the time, and a sum is too large by a factor of "
            "size(). Use one of the two.",
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

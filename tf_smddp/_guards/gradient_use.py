"""Notices gradients that are never reduced, or twice: mistakes that give wrong or slow training, not errors.

All is known while Python builds or runs the step, so a step that is traced once costs nothing later.
"""

from __future__ import annotations

import threading
import warnings
import weakref
from typing import Any, Dict, Iterable, List, Optional, Sequence, Tuple

import numpy as np
import tensorflow as tf

from smddp import ReduceOp, runtime
from tf_smddp._base.arguments import unwrapped

_ById = weakref.WeakValueDictionary[int, Any]
_FEW = 4  # of each broadcast, and small ones; or one of any size
_SMALL = 16384  # elements
_SECONDS = 60.0
_STEPS = "_tf_smddp_steps"  # set on a variable
_WRAP = "Wrap the optimizer in DistributedOptimizer, or the tape in DistributedGradientTape"


class _Seen:
    """The use of gradients in this process since init()."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        self.reduced = False  # gradients, or what may be some
        self.timer: Optional[threading.Timer] = None  # until something is reduced
        self.by_hand = False  # of variables that we do not know
        self.has_broadcast = False
        # The variables that were broadcast, by id; and of a few of these, the values then.
        self.broadcast: _ById = weakref.WeakValueDictionary()
        self.num_broadcasts = 0
        # Those that were broadcast eagerly, by the number of the broadcast and the place in it.
        self.shared: weakref.WeakValueDictionary[Tuple[int, int], tf.Variable] = weakref.WeakValueDictionary()
        self.values: Dict[int, Any] = {}
        self.is_changing = False  # whether _look() found other values than before
        self.unless_broadcast: List[str] = []
        self.warned_of_never = self.warned_of_twice = False
        # By id: the variables of which a tape or an optimizer has reduced gradients; those that each rank has
        # for itself, or a process set has; and the optimizers that were warned of.
        self.by_tape: _ById = weakref.WeakValueDictionary()
        self.by_optimizer: _ById = weakref.WeakValueDictionary()
        self.apart: _ById = weakref.WeakValueDictionary()
        self.told_of: _ById = weakref.WeakValueDictionary()
        self.tables: _ById = weakref.WeakValueDictionary()  # their gradients are tf.IndexedSlices


_seen = _Seen()


def note_gradients(gradients: Sequence[Any], sources: Sequence[Any]) -> None:
    """Notes that gradients are reduced, by a tape or an optimizer; None where there is none.

    Args:
        gradients: tensors, tf.IndexedSlices or None.
        sources: of what they are gradients: variables, or anything else; the list may be shorter.
    """
    if all(gradient is None for gradient in gradients):
        return
    _note_reduction()
    for source, gradient in zip(map(unwrapped, sources), gradients):
        if isinstance(gradient, tf.IndexedSlices) and isinstance(source, tf.Variable):
            _seen.tables[id(source)] = source


def _note_reduction() -> None:
    if not _seen.reduced:
        _seen.reduced = True
        _stop_timer()


def note_users(tensors: Sequence[tf.Tensor], reduce_op: ReduceOp) -> None:
    """Notes that a user's script reduces tensors, which may be gradients: sums or averages of such numbers.

    What is reduced for other purposes calls none of these functions: the statistics of
    SyncBatchNormalization, averages of metrics, numbers by which ranks agree.
    """
    if reduce_op in (ReduceOp.SUM, ReduceOp.AVERAGE):
        _seen.by_hand |= any(each.dtype.is_floating or each.dtype.is_complex for each in tensors)
        if _seen.by_hand:
            _note_reduction()


def note_broadcast(variables: Sequence[tf.Variable]) -> None:
    """Notes that variables have been broadcast, as they are before a training."""
    _seen.has_broadcast = True
    _seen.unless_broadcast.clear()
    if not tf.compat.v1.executing_eagerly_outside_functions():
        return  # a v1 graph's variables have values in a session only
    if tf.executing_eagerly():  # a function may be traced at another time on each rank
        known = {id(each) for each in _seen.shared.values()}
        _seen.num_broadcasts += 1
        new = {place: each for place, each in enumerate(variables) if id(each) not in known}
        _seen.shared.update({(_seen.num_broadcasts, place): each for place, each in new.items()})
    _seen.broadcast.update({id(each): each for each in variables})
    if tf.executing_eagerly() and not _seen.reduced and runtime.rank() == 0:
        trained = list(filter(_is_trained, variables))
        for each in sorted(trained, key=_size_of)[:_FEW]:
            if _size_of(each) <= _SMALL or not _seen.values:
                _seen.values[id(each)] = np.array(each.numpy())
        if _seen.timer is None and runtime.size() > 1:
            _start_timer()


# Nothing of ours runs in a loop that reduces nothing.
def _start_timer() -> None:
    _seen.timer = threading.Timer(_SECONDS, _look)
    _seen.timer.daemon = True
    _seen.timer.start()


def _stop_timer() -> None:
    if _seen.timer is not None:
        _seen.timer.cancel()


def _look() -> None:
    """Warns if variables that were broadcast change from look to look; else looks again later.

    They may change once without a training: a script may load weights after the broadcast.
    """
    changed = have_changed(broadcast_ones())
    if changed and _seen.is_changing:
        warn_if_never_reduced("tf_smddp", "variables that were broadcast get new values again and again")
    elif not _seen.reduced:
        _seen.is_changing = bool(changed)
        known = {id(each): each for each in broadcast_ones()}
        _seen.values = {key: np.array(known[key].numpy()) for key in list(_seen.values) if key in known}
        _start_timer()


def _size_of(variable: tf.Variable) -> int:
    return int(np.prod(variable.shape.as_list()))


def broadcast_ones() -> List[tf.Variable]:
    """The trained variables that were broadcast to all ranks, in the same order on all."""
    return [each for each in _seen.broadcast.values() if _is_trained(each)]


def _is_trained(variable: tf.Variable) -> bool:
    return bool(variable.trainable and variable.dtype.is_floating)


def shared_ones() -> Dict[Tuple[int, int], tf.Variable]:
    """The trained variables that were broadcast eagerly, by a key that is the same on all ranks."""
    return {key: each for key, each in _seen.shared.items() if _is_trained(each) and not is_apart(each)}


def is_table(variable: tf.Variable) -> bool:
    """Whether this variable's gradients are rows (tf.IndexedSlices), as an embedding's are."""
    return id(variable) in _seen.tables


def have_changed(variables: Sequence[tf.Variable]) -> Optional[bool]:
    """Whether some of these have other values than when they were broadcast; None if that is not known.

    Only a few small ones are known.
    """
    known = [each for each in variables if id(each) in _seen.values]
    if not known:
        return None
    return any(not np.array_equal(_seen.values[id(each)], each.numpy(), equal_nan=True) for each in known)


def is_reduced(variable: tf.Variable) -> bool:
    """Whether this variable's gradient was reduced, or need not be."""
    return any(id(variable) in each for each in (_seen.by_tape, _seen.by_optimizer, _seen.apart))


def warn_unless_broadcast(text: str) -> None:
    """Warns at the end of the job, unless variables are broadcast until then."""
    _seen.unless_broadcast.append(text)


def note_tape(sources: Sequence[Any], gradients: Sequence[Any]) -> None:
    """Notes that a DistributedGradientTape has reduced these gradients; None where there is none."""
    for source, gradient in zip(map(unwrapped, sources), gradients):
        if gradient is not None and isinstance(source, tf.Variable):
            _seen.by_tape[id(source)] = source
        else:
            _seen.by_hand |= gradient is not None


def note_apart(variables: Iterable[Any]) -> None:
    """Notes that these variables may differ between ranks: their gradients are not reduced over all ranks."""
    for variable in map(unwrapped, variables):
        if isinstance(variable, tf.Variable):
            _seen.apart[id(variable)] = variable


def note_averaging(variables: Sequence[Any], steps: tf.Variable) -> None:
    """Notes that LocalSGD averages these variables.

    Args:
        variables: those of an optimizer.
        steps: how many steps it has taken since the last averaging: an int64 scalar.
    """
    _note_reduction()
    for variable in map(unwrapped, variables):
        setattr(variable, _STEPS, steps)


def is_averaged(variable: Any) -> bool:
    """Whether LocalSGD averages this variable."""
    return hasattr(unwrapped(variable), _STEPS)


def is_apart(variable: Any) -> bool:
    """Whether this variable may differ between ranks now. Between two steps it is the same on all ranks."""
    found = unwrapped(variable)
    return id(found) in _seen.apart or (is_averaged(found) and int(getattr(found, _STEPS)) > 0)


def note_optimizer(variables: Sequence[Any], caller: str) -> None:
    """Notes that an optimizer is about to reduce the gradients of these variables, or averages them.

    Warns, once, if tapes have reduced them.

    Args:
        variables: those of the optimizer's step.
        caller: what has made the optimizer.
    """
    found = [each for each in map(unwrapped, variables) if isinstance(each, tf.Variable)]
    _seen.by_optimizer.update({id(each): each for each in found})
    twice = [each for each in found if id(each) in _seen.by_tape]
    if twice and not _seen.warned_of_twice and runtime.rank() == 0:
        _seen.warned_of_twice = True
        warnings.warn(
            f"{caller} gets gradients that DistributedGradientTape has reduced before (first "
            f"{twice[0].name!r}). DistributedOptimizer reduces them again: an average takes twice the time, "
            "and a sum is too large by a factor of size(). With LocalSGD no step is local. Use one of both.",
            stacklevel=2,
        )


def warn_if_never_reduced(caller: str, what: str) -> None:
    """Warns, once, if nothing has been reduced until now, so that each rank trains by itself.

    Args:
        caller: what has noticed it.
        what: what has been done by now, for the warning.
    """
    if _seen.reduced or _seen.warned_of_never or runtime.size() == 1 or runtime.rank() != 0:
        return
    _seen.warned_of_never = True
    warnings.warn(
        f"{caller}: {what}, but no gradient was reduced: each of the {runtime.size()} ranks has trained a "
        f"model of its own. {_WRAP}. If nothing was to be trained, ignore this.",
        stacklevel=2,
    )


def warn_if_optimizer_never_reduces(caller: str, optimizer: Any, variables: Sequence[Any]) -> None:
    """Warns, once for each, of an optimizer that is not distributed, unless a tape has reduced for it.

    Args:
        caller: what has noticed it.
        optimizer: a plain one, which has applied gradients.
        variables: those that it trains.
    """
    if _seen.by_hand or runtime.size() == 1 or runtime.rank() != 0 or id(optimizer) in _seen.told_of:
        return
    if not _seen.reduced or not variables or any(id(unwrapped(each)) in _seen.by_tape for each in variables):
        return  # warn_if_never_reduced() is for what has reduced nothing at all
    _seen.told_of[id(optimizer)] = optimizer
    warnings.warn(
        f"{caller}: an optimizer ({type(optimizer).__name__}) has applied gradients that were not reduced: "
        f"each of the {runtime.size()} ranks has trained {unwrapped(variables[0]).name!r} by itself. "
        f"{_WRAP}; each new optimizer needs it, also after another compile().",
        stacklevel=2,
    )


def _at_shutdown() -> None:
    _stop_timer()
    for text in _seen.unless_broadcast:
        warnings.warn(text, stacklevel=2)
    if _seen.has_broadcast:
        warn_if_never_reduced("tf_smddp", "variables were broadcast and the job has ended")


runtime.before_shutdown.append(_at_shutdown)
runtime.at_shutdown.append(_seen.forget)

"""SMDDP_CHECK_EVERY=N: every N steps, whether all ranks have the same weights, and finite gradients.

All ranks apply the same reduced gradients, so their weights stay equal to the bit. They drift apart where a
rank changes them by itself: a checkpoint that it alone restores, an operation that is not deterministic, an
update on one rank only; and where an optimizer does not reduce. So all weights that were broadcast are
compared, not only those of the step. The check is part of the step, before the gradients are reduced: it
gets the values that the step reads. The comparison goes through a process set of its own, so that it takes
no place among the gradients.
"""

from __future__ import annotations

import gc
import os
import warnings
from typing import Any, Dict, Optional, Sequence, Tuple

import numpy as np
import tensorflow as tf

from smddp import ReduceOp, runtime
from smddp.process_sets import ProcessSet, add_process_set
from tf_smddp._base.arguments import unwrapped
from tf_smddp._collectives.allgather import allgather
from tf_smddp._collectives.allreduce import allreduce
from tf_smddp._graphs import op_parts, tickets
from tf_smddp._guards.gradient_use import broadcast_ones, is_apart, is_averaged
from tf_smddp._guards.start_weights import BYTES, hash_of_array, number_of

SETTING = "SMDDP_CHECK_EVERY"
_APART = bytes(BYTES)  # in place of the hash of what may differ


class _Check:
    """The check of the variables of one step, and of the others that have been broadcast by then.

    Attributes:
        variables: these, first those of the step.
    """

    def __init__(self, variables: Sequence[tf.Variable], caller: str):
        gc.collect()  # so that all ranks find the same ones
        known = {id(each) for each in variables}
        self.variables = [*variables, *(each for each in broadcast_ones() if id(each) not in known)]
        self._names = [each.name for each in self.variables]
        self._caller = caller
        with tf.init_scope():
            self.count = tf.Variable(0, dtype=tf.int64, trainable=False, name="tf_smddp_check")

    def run(self, count: tf.Tensor, values: Sequence[tf.Tensor], finite: Sequence[tf.Tensor]) -> bool:
        """Collective, eager: compares the values of all ranks.

        Args:
            count: the number of steps.
            values: those of the variables.
            finite: whether this rank's gradients of those of the step are finite; bool scalars.

        Raises:
            RuntimeError: a variable differs between ranks; on all ranks.
        """
        hashes = [
            _APART if is_averaged(variable) or is_apart(variable) else hash_of_array(value.numpy())
            for variable, value in zip(self.variables, values)
        ]
        broken = [not bool(each) for each in finite]
        number = number_of(hashes)
        mine = np.array([number, ~number, any(broken)])
        largest, negated_least, some_broken = allreduce(mine, op=ReduceOp.MAX, process_set=_set()).numpy()
        if largest != ~negated_least:
            self._raise_drift(int(count), hashes)
        if some_broken and not _state.warned:
            self._warn_of_gradients(int(count), broken)
        return True

    def _raise_drift(self, count: int, hashes: Sequence[bytes]) -> None:
        those, by_rank = _of_all_ranks([np.frombuffer(each, np.int64)[0] for each in hashes])
        differs = (by_rank != by_rank[0]).any(axis=0) & (by_rank != 0).all(axis=0)
        if not differs.any():
            return  # a process set has what differs
        first = int(np.argmax(differs))
        ranks = those[by_rank[:, first] != by_rank[0, first]].tolist()
        raise RuntimeError(
            f"{self._caller}: the ranks' weights have drifted apart by step {count} ({SETTING}): "
            f"{int(differs.sum())} of {len(self._names)} variables differ, first {self._names[first]!r} of "
            f"rank {', '.join(map(str, ranks))} from rank {those[0]}'s. A rank has changed it by itself: a "
            "checkpoint that it alone has restored, an update on one rank only, or an operation that is not "
            "deterministic (tf.config.experimental.enable_op_determinism). Or an optimizer that does not "
            "reduce trains it."
        )

    def _warn_of_gradients(self, count: int, broken: Sequence[bool]) -> None:
        _state.warned = True
        those, by_rank = _of_all_ranks(broken)
        bad = int(np.argmax(by_rank.any(axis=1)))
        rank = those[bad]
        if runtime.rank() == those[0]:
            warnings.warn(
                f"{self._caller}: in step {count}, rank {rank}'s gradient of "
                f"{self._names[int(np.argmax(by_rank[bad]))]!r} has a NaN or an infinity before it is "
                f"reduced ({SETTING}); after that, so have all ranks'. Look at the data of rank {rank}.",
                stacklevel=2,
            )


class _State:
    """The state since init()."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        self.checks: Dict[Tuple[int, ...], _Check] = {}
        self.process_set: Optional[ProcessSet] = None
        self.warned = self.told_of_weights = False


_state = _State()
runtime.at_shutdown.append(_state.forget)


def check(variables: Sequence[Any], gradients: Sequence[Any], caller: str) -> None:
    """Makes the check a part of the step, if the setting asks for one. Collective in every N-th step.

    Args:
        variables: what is trained; the list may be shorter than that of the gradients.
        gradients: this rank's, not reduced; tensors, tf.IndexedSlices or None.
        caller: the public function, for errors.

    Raises:
        RuntimeError: in eager mode, a variable differs between ranks. In a graph, the step raises it.
        ValueError: the setting is not a number of steps.
    """
    every = _every()
    if every == 0 or runtime.size() == 1 or tickets.pairs_by_name():
        return
    pairs = [(unwrapped(v), g) for v, g in zip(variables, gradients) if g is not None]
    pairs = [(v, g) for v, g in pairs if isinstance(v, tf.Variable)]
    if not pairs:
        return
    if op_parts.in_xla_context():
        warnings.warn(f"{SETTING} does not check steps that XLA compiles as a whole.", stacklevel=3)
        return
    key = tuple(id(v) for v, _ in pairs)
    if key not in _state.checks:
        _set()
        _state.checks[key] = _Check([v for v, _ in pairs], caller)
    found = _state.checks[key]
    count = found.count.assign_add(1)

    def run() -> tf.Tensor:
        values = [tf.convert_to_tensor(each) for each in found.variables]
        finite = [_is_finite(gradient) for _, gradient in pairs]
        return tf.py_function(
            lambda n, *rest: found.run(n, rest[: len(values)], rest[len(values) :]),
            [count, *values, *finite],
            tf.bool,
        )

    tf.cond(tf.equal(count % every, 0), run, lambda: tf.constant(True))


def is_on() -> bool:
    """Whether the setting allows checks that cost next to nothing: unless it is 0.

    It raises no error: one rank may ask alone. The step raises that of a wrong setting, on all ranks.
    """
    return os.environ.get(SETTING) != "0"


def warn_of_weights(caller: str, name: str) -> None:
    """Warns, once, on rank 0, that a weight, called `name`, is not finite. So it is on all ranks, by now."""
    if not _state.told_of_weights and runtime.rank() == 0:
        _state.told_of_weights = True
        warnings.warn(
            f"{caller}: the weights are not finite: {name!r} has a NaN or an infinity. If one rank's "
            f"gradients had it, all ranks' weights have it now. {SETTING}=1 names that rank and the step: "
            "look at its data.",
            stacklevel=2,
        )


def prepare() -> None:
    """Collective if the setting asks for a check: makes what a check cannot make while a rank has left."""
    if _every() != 0 and runtime.size() > 1:
        _set()


def _every() -> int:
    text = os.environ.get(SETTING, "0")
    if not (text.isascii() and text.isdecimal()):
        raise ValueError(f"{SETTING} must be a number of steps, or 0 for no check, but is {text!r}.")
    return int(text)


def _set() -> ProcessSet:
    """The checks' process set. Collective in the first call, which is in the first step of all ranks."""
    if _state.process_set is None:
        _state.process_set = add_process_set(list(range(runtime.size())))
    return _state.process_set


def _of_all_ranks(row: Sequence[Any]) -> Tuple[np.ndarray, np.ndarray]:
    """Collective: the ranks that have not left for the end of a join(), and their rows, [ranks, columns]."""
    gathered = allgather(np.array([[runtime.rank(), *row]], np.int64), process_set=_set()).numpy()
    return gathered[:, 0], gathered[:, 1:]


def _is_finite(gradient: Any) -> tf.Tensor:
    values = gradient.values if isinstance(gradient, tf.IndexedSlices) else tf.convert_to_tensor(gradient)
    return tf.reduce_all(tf.math.is_finite(values)) if values.dtype.is_floating else tf.constant(True)

"""Whether all ranks still have the same weights, between the epochs of `fit`.

All ranks apply the same reduced gradients, so their weights stay equal to the bit. They do not where an
optimizer does not reduce (a new one after another `compile`, one of several, one that was made of another's
config), and where a rank changes its weights by itself. Nothing else would tell.

Ranks compare 16 bytes, a hash of the weights, and only if these differ the hashes of all variables. Variables
that may differ are left out: those that are not trained (moving averages, seeds, counters), and what each
rank or a process set has for itself. loop_check.py does so in loops, and with SMDDP_CHECK_EVERY
periodic_check.py within the steps.
"""

from __future__ import annotations

import math
import time
import warnings
from typing import Any, List, Sequence, Set

import numpy as np
import tensorflow as tf

from smddp import WORLD, ReduceOp, runtime
from tf_smddp._base.arguments import source_label, unwrapped
from tf_smddp._collectives.allreduce import allreduce_group
from tf_smddp._collectives.compression import Compression
from tf_smddp._graphs.call_site import immediately
from tf_smddp._guards import periodic_check
from tf_smddp._guards.gradient_use import is_apart
from tf_smddp._guards.start_weights import BYTES, hash_with_kind, number_of, of_all_ranks

# A check takes at most one part of this many of the time: if it takes longer, it leaves epochs out.
_PARTS_OF_TIME = 100
_LEFT_OUT = bytes(3 * BYTES)


class EpochCheck:
    """The check of one callback."""

    def __init__(self, caller: str):
        self._caller = caller
        self._is_over = False
        self._left_out: Set[int] = set()  # the places of variables that may differ on another rank
        self.begin()

    def begin(self) -> None:
        """A `fit` begins."""
        self._epochs = 0
        self._wait = 1
        self._last = time.monotonic()

    def run(self, variables: Sequence[Any], epoch: int) -> None:
        """Warns, once, if the weights differ. Collective, in the same epochs on all ranks.

        Args:
            variables: the weights, in the same order on all ranks.
            epoch: the number of epochs that have ended, for the warning.
        """
        self._epochs += 1
        if self._is_over or self._epochs < self._wait or runtime.size() == 1 or not periodic_check.is_on():
            return
        begin = time.monotonic()
        hashes, values = self._hashes_of(variables)
        broken = next((i for i, value in values.items() if not np.isfinite(value).all()), None)
        end = time.monotonic()
        wait = math.ceil(_PARTS_OF_TIME * (end - begin) * self._epochs / max(begin - self._last, 1e-6))
        if broken is not None:
            periodic_check.warn_of_weights(self._caller, source_label(variables[broken]))
        number = number_of(hashes)
        with immediately(self._caller):
            mine = np.array([number, ~number, wait], np.int64)
            largest, negated_least, self._wait = self._largest(mine, "weights")
            if largest != ~negated_least:
                self._compare(variables, hashes, values, epoch)
        self._epochs, self._last = 0, time.monotonic()

    def _largest(self, values: np.ndarray, what: str) -> np.ndarray:
        """Collective, in order with the gradients: a rank that had fewer batches is told so."""
        name = f"{self._caller}/{what}"
        return allreduce_group(  # allreduce() would count as the user's own
            [tf.constant(values)], [name], Compression.none, ReduceOp.MAX, name, WORLD, caller=self._caller
        )[0].numpy()

    def _hashes_of(self, variables: Sequence[Any]) -> Any:
        places = [i for i, each in enumerate(variables) if i not in self._left_out and _is_trained(each)]
        found = [unwrapped(variables[i]) for i in places]
        if tf.executing_eagerly():
            values = {i: each.numpy() for i, each in zip(places, found)}
        else:  # Keras 2 in a v1 graph
            values = dict(zip(places, tf.compat.v1.keras.backend.batch_get_value(found)))
        return [
            hash_with_kind(values[i]) if i in values else _LEFT_OUT for i in range(len(variables))
        ], values

    def _compare(self, variables: Sequence[Any], hashes: List[bytes], values: Any, epoch: int) -> None:
        """Collective: looks for the first variable that differs, and warns of it."""
        by_rank = of_all_ranks(hashes)
        ranks, rows = list(by_rank), list(by_rank.values())
        differ = []
        for i, column in enumerate(zip(*rows)):
            if len({each[:BYTES] for each in column}) > 1:
                self._left_out.add(i)  # on some ranks, or another variable there
            elif len(set(column)) > 1:
                differ.append(i)
        if len({len(row) for row in rows}) > 1 or not differ:
            return
        self._is_over = True
        first = differ[0]
        value = np.asarray(values[first], np.float64)
        most, negated_least = self._largest(np.stack([value, -value]), "difference")
        other = next(rank for rank, row in by_rank.items() if row[first] != rows[0][first])
        if runtime.rank() == ranks[0]:
            warnings.warn(
                f"{self._caller}: after epoch {epoch}, the ranks' weights differ: {len(differ)} of "
                f"{len(values)} trained variables, first {source_label(variables[first])!r} of rank {other} "
                f"from rank {ranks[0]}'s, by up to {np.max(most + negated_least):.2g}. Most likely an "
                "optimizer that does not reduce trains it: wrap each one in DistributedOptimizer, also after "
                "another compile(), or its tape in DistributedGradientTape. Or a rank has changed it by "
                "itself: a checkpoint that it alone has loaded, an update on one rank only, or an operation "
                f"that is not deterministic. {periodic_check.SETTING}=1 finds the step; 0 turns this off.",
                stacklevel=2,
            )


def _is_trained(variable: Any) -> bool:
    found = unwrapped(variable)
    return (
        isinstance(found, tf.Variable)
        and variable.trainable
        and found.dtype.is_floating
        and not is_apart(found)
    )

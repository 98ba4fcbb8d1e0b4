"""Looks, in loops, for an optimizer that does not reduce while another one does, and for weights with a NaN.

The callbacks do so in `fit` (_drift.py). In a loop, rank 0 looks in the first call of one of our functions
that comes a minute after the first reduction, then each minute, and when the job ends. It looks at its own
objects alone: nothing is sent.
"""

from __future__ import annotations

import gc
import time
from typing import Any, Dict, Iterator, List

import numpy as np
import tensorflow as tf

from tf_smddp import _call_site, _gradient_use, _runtime
from tf_smddp._conversion import unwrapped
from tf_smddp._model_variables import value_of
from tf_smddp._optimizers.arguments import reduces
from tf_smddp._optimizers.reclassing import has_ancestor
from tf_smddp._periodic_check import is_on, warn_of_weights

_SECONDS = 60.0
_PARTS_OF_TIME = 100  # looking takes at most one of these


class _State:
    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        self.next = 0.0
        self.knows_optimizers = False


_state = _State()


def _after_call() -> None:
    now = time.monotonic()
    if now >= _state.next and now - _gradient_use.reduced_at() >= _SECONDS:
        _look()
        end = time.monotonic()
        _state.next = end + max(_SECONDS, _PARTS_OF_TIME * (end - now))


def _look() -> None:
    if _runtime.rank() != 0 or _runtime.size() == 1 or not tf.executing_eagerly() or not is_on():
        return
    broadcast = _gradient_use.broadcast_ones()
    if broadcast and not _state.knows_optimizers:
        _state.knows_optimizers = True
        _warn_of_optimizers(broadcast)
    broken = next((each for each in broadcast if not np.isfinite(each.numpy()).all()), None)
    if broken is not None:
        warn_of_weights("tf_smddp", broken.name)


def _warn_of_optimizers(broadcast: List[tf.Variable]) -> None:
    """Warns of those that have trained what was broadcast, and whose gradients nothing has reduced."""
    for optimizer in _plain_optimizers():
        trained = _trained_by(optimizer, broadcast)
        if not trained or any(map(_gradient_use.is_reduced, trained)):
            continue
        # A model that was loaded brings its optimizer, which may train nothing.
        if value_of(optimizer.iterations) > 0 and _gradient_use.have_changed(trained) is not False:
            _gradient_use.warn_if_optimizer_never_reduces("tf_smddp", optimizer, trained)


def _plain_optimizers() -> Iterator[Any]:
    """Keras's optimizers that this process has, but those that reduce, or wrap another one."""
    kinds: Dict[type, bool] = {}
    for each in gc.get_objects():
        kind = type(each)
        if kind not in kinds:
            names = ("BaseOptimizer", "_BaseOptimizer", "OptimizerV2")
            kinds[kind] = any(has_ancestor(each, name) for name in names)
        if kinds[kind] and not reduces(each) and not hasattr(each, "inner_optimizer"):
            yield each


def _trained_by(optimizer: Any, variables: List[tf.Variable]) -> List[tf.Variable]:
    """Those of `variables` that the optimizer knows. Keras 2's legacy SGD without momentum knows none."""
    known = getattr(optimizer, "_trainable_variables", None)
    if known is not None:  # Keras 3
        ids = {id(unwrapped(each)) for each in known}
        return [each for each in variables if id(each) in ids]
    keys = {*getattr(optimizer, "_index_dict", ()), *getattr(optimizer, "_slots", ())}
    return [each for each in variables if each._unique_id in keys]


def _at_shutdown() -> None:
    _state.knows_optimizers = False  # some may have begun since
    _look()


_call_site.after_call.append(_after_call)
_runtime.before_shutdown.append(_at_shutdown)
_runtime.at_shutdown.append(_state.forget)

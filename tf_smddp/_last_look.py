"""Looks, at the end of the job, for an optimizer that has not reduced, and for weights with a NaN.

In loops the ranks compare what was broadcast (_loop_check.py), but no variables that were not, and not in the
last steps of a job. Here rank 0 looks at its own objects alone: nothing is sent.
"""

from __future__ import annotations

import gc
from typing import Any, Dict, Iterator, List

import numpy as np
import tensorflow as tf

from tf_smddp import _gradient_use, _runtime
from tf_smddp._conversion import unwrapped
from tf_smddp._model_variables import value_of
from tf_smddp._optimizers.arguments import reduces
from tf_smddp._optimizers.reclassing import has_ancestor
from tf_smddp._periodic_check import is_on, warn_of_weights


def _look() -> None:
    if _runtime.rank() != 0 or _runtime.size() == 1 or not tf.executing_eagerly() or not is_on():
        return
    broadcast = _gradient_use.broadcast_ones()
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


_runtime.before_shutdown.append(_look)

"""Looks, at the end of the job, for an optimizer that has not reduced, and for weights with a NaN.

In loops the ranks compare what was broadcast (loop_check.py), but no variables that were not, and not in the
last steps of a job. Here rank 0 looks at its own objects alone: nothing is sent.
"""

from __future__ import annotations

import gc
from typing import Any, Dict, Iterator, List

import numpy as np
import tensorflow as tf

from smddp import runtime
from tf_smddp._base.arguments import unwrapped
from tf_smddp._guards import gradient_use
from tf_smddp._guards.periodic_check import is_on, warn_of_weights
from tf_smddp._training.model_variables import value_of
from tf_smddp._training.optimizers.arguments import reduces
from tf_smddp._training.optimizers.reclassing import has_ancestor


def _look() -> None:
    if runtime.rank() != 0 or runtime.size() == 1 or not tf.executing_eagerly() or not is_on():
        return
    broadcast = gradient_use.broadcast_ones()
    _warn_of_optimizers(broadcast)
    broken = next((each for each in broadcast if not np.isfinite(each.numpy()).all()), None)
    if broken is not None:
        warn_of_weights("tf_smddp", broken.name)


def _warn_of_optimizers(broadcast: List[tf.Variable]) -> None:
    """Warns of those that have trained what was broadcast, and whose gradients nothing has reduced."""
    for optimizer in _plain_optimizers():
        trained = _trained_by(optimizer, broadcast)
        if not trained or any(map(gradient_use.is_reduced, trained)):
            continue
        # A model that was loaded brings its optimizer, which may train nothing.
        if value_of(optimizer.iterations) > 0 and gradient_use.have_changed(trained) is not False:
            gradient_use.warn_if_optimizer_never_reduces("tf_smddp", optimizer, trained)


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


runtime.before_shutdown.append(_look)

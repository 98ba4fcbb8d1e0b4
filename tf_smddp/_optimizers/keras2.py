"""The optimizers of Keras 2 (tf.keras up to TensorFlow 2.15, and tf_keras), and its legacy ones.

Gradients are reduced in `aggregate_gradients` (in the legacy optimizers, `_aggregate_gradients`), which Keras
has for tf.distribute. `fit`, `minimize` and `apply_gradients` call it once, clip and decay afterwards, and
skip it on request (`skip_gradients_aggregation=True`, `experimental_aggregate_gradients=False`).
LossScaleOptimizer calls that of its inner optimizer before it checks for infinities, so the inner optimizer
becomes distributed in any case.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any, Callable, List, Optional, Tuple

import tensorflow as tf

from tf_smddp._autograph import not_converted
from tf_smddp._optimizers.accumulation import Accumulation
from tf_smddp._optimizers.arguments import Reduction
from tf_smddp._optimizers.reclassing import Distributed, make_distributed, state_of

Pairs = List[Tuple[Any, Any]]


@dataclasses.dataclass
class State:
    """The state of a distributed optimizer of Keras 2 or tf.compat.v1 besides the plain optimizer's."""

    reduction: Reduction
    accumulation: Optional[Accumulation]

    def reduce(self, grads_and_vars: Any, optimizer: Any) -> Pairs:
        """Reduces the gradients of (gradient, variable) pairs, for `optimizer`. Collective."""
        pairs = list(grads_and_vars)
        gradients = [gradient for gradient, _ in pairs]
        variables = [variable for _, variable in pairs]
        self.reduction.prepare(variables, optimizer)
        if self.accumulation:
            reduced = self.accumulation.add(gradients, variables, self.reduction)
        else:
            reduced = self.reduction(gradients, variables)
        return list(zip(reduced, variables))

    def take_is_step(self) -> Optional[tf.Tensor]:
        """Returns `Accumulation.take_is_step()`, or None without accumulation."""
        return self.accumulation.take_is_step() if self.accumulation else None


def apply_if(is_step: tf.Tensor, apply: Callable[[], Any]) -> Any:
    """Calls `apply` if `is_step` is true. Returns an operation in a graph."""

    def applied() -> tf.Tensor:
        done = apply()
        # Needed in v1 graphs only, where nothing else makes the branch run the operations in it.
        waits_for = [] if tf.executing_eagerly() or done is None else [done]
        with tf.control_dependencies(waits_for):
            return tf.constant(True)

    return tf.group(tf.cond(is_step, applied, lambda: tf.constant(False)))


class Keras2(Distributed):
    """The mixin for classes that have `aggregate_gradients`."""

    @not_converted
    def aggregate_gradients(self, grads_and_vars: Any) -> Any:
        """As the plain optimizer's, and reduced over all ranks. Collective."""
        return super().aggregate_gradients(state_of(self).reduce(grads_and_vars, self))  # type: ignore[misc]

    @not_converted
    def apply_gradients(self, grads_and_vars: Any, *args: Any, **kwargs: Any) -> Any:
        """As the plain optimizer's; with several backward passes per step, only in the last one."""
        if state_of(self).accumulation:
            return self._apply_in_last_pass(list(grads_and_vars), *args, **kwargs)
        return super().apply_gradients(grads_and_vars, *args, **kwargs)  # type: ignore[misc]

    def _apply_in_last_pass(
        self,
        pairs: Pairs,
        name: Optional[str] = None,
        skip_gradients_aggregation: bool = False,
        experimental_aggregate_gradients: bool = True,
    ) -> Any:
        if experimental_aggregate_gradients and not skip_gradients_aggregation:
            pairs = self.aggregate_gradients(pairs)
        plain_apply = functools.partial(
            super().apply_gradients,  # type: ignore[misc]
            pairs,
            name=name,
            skip_gradients_aggregation=True,
        )
        is_step = state_of(self).take_is_step()
        if is_step is None:
            return plain_apply()
        with tf.init_scope():
            self.build([variable for _, variable in pairs])  # type: ignore[attr-defined]
        apply_if(is_step, plain_apply)
        return self.iterations  # type: ignore[attr-defined]


class Legacy(Distributed):
    """The mixin for classes that have `_aggregate_gradients`."""

    @not_converted
    def _aggregate_gradients(self, grads_and_vars: Any) -> Any:
        """As the plain optimizer's, and reduced over all ranks. Collective."""
        return super()._aggregate_gradients(state_of(self).reduce(grads_and_vars, self))  # type: ignore[misc]

    @not_converted
    def apply_gradients(self, grads_and_vars: Any, *args: Any, **kwargs: Any) -> Any:
        """As the plain optimizer's; with several backward passes per step, only in the last one."""
        if state_of(self).accumulation:
            return self._apply_in_last_pass(list(grads_and_vars), *args, **kwargs)
        return super().apply_gradients(grads_and_vars, *args, **kwargs)  # type: ignore[misc]

    def _apply_in_last_pass(
        self, pairs: Pairs, name: Optional[str] = None, experimental_aggregate_gradients: bool = True
    ) -> Any:
        if experimental_aggregate_gradients:
            pairs = self._transform_unaggregated_gradients(pairs)  # type: ignore[attr-defined]
            pairs = self._aggregate_gradients(pairs)
        plain_apply = functools.partial(super().apply_gradients, pairs, name, False)  # type: ignore[misc]
        is_step = state_of(self).take_is_step()
        if is_step is None:
            return plain_apply()
        with tf.init_scope():
            self._create_all_weights([variable for _, variable in pairs])  # type: ignore[attr-defined]
        return apply_if(is_step, plain_apply)

    def __deepcopy__(self, memo: Any) -> Any:
        # Keras's own version creates an object of the plain class, which does not reduce.
        copy = super().__deepcopy__(memo)  # type: ignore[misc]
        make_distributed(copy, Legacy, state_of(copy))
        return copy

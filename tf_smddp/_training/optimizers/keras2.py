"""The optimizers of Keras 2 (tf.keras up to TensorFlow 2.15, and tf_keras), and its legacy ones.

Gradients are reduced first of all in `apply_gradients`, which `fit` and `minimize` call, and so before what a
subclass does in its own `apply_gradients`. Keras calls `aggregate_gradients` (in the legacy optimizers,
`_aggregate_gradients`) from there, which it has for tf.distribute; it clips and decays afterwards. Both are
skipped on request (`skip_gradients_aggregation=True`, `experimental_aggregate_gradients=False`).

LossScaleOptimizer calls its inner optimizer's `aggregate_gradients` before it checks for infinities, and then
its `apply_gradients` with that request. So `aggregate_gradients` reduces, too, unless `apply_gradients` has,
and the inner optimizer becomes distributed in any case.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from typing import Any, Callable, Iterator, List, Optional

import tensorflow as tf

from tf_smddp._training.optimizers.accumulation import Accumulation
from tf_smddp._training.optimizers.arguments import Pairs, Reduction
from tf_smddp._training.optimizers.reclassing import Distributed, make_distributed, state_of


@dataclasses.dataclass
class State:
    """The state of a distributed optimizer of Keras 2 or tf.compat.v1 besides the plain optimizer's."""

    reduction: Reduction
    make_accumulation: Optional[Callable[[], Accumulation]]
    # Whether the gradients that are being applied are reduced.
    is_reduced: bool = False

    def __post_init__(self) -> None:
        self.accumulation = self.make_accumulation() if self.make_accumulation else None

    def copy(self) -> State:
        """Returns the state of another optimizer, which reduces in the same way."""
        return State(self.reduction, self.make_accumulation)

    @contextlib.contextmanager
    def reduced(self) -> Iterator[None]:
        """Within it, the gradients that are being applied are not reduced once more."""
        self.is_reduced = True
        try:
            yield
        finally:
            self.is_reduced = False

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


class _ReducesFirst(Distributed):
    """Reduces before the plain optimizer's `apply_gradients`, also if a subclass has overridden that."""

    def apply_gradients(self, grads_and_vars: Any, *args: Any, **kwargs: Any) -> Any:
        """As the plain optimizer's, with the gradients reduced over all ranks. Collective.

        With several backward passes per step, it applies them in the last one only.
        """
        state, pairs = state_of(self), list(grads_and_vars)
        if self._aggregates(*args, **kwargs):
            self._build_if_first(pairs)
            pairs = state.reduce(pairs, self)
        is_step = state.take_is_step()
        plain = super().apply_gradients  # type: ignore[misc]
        plain_apply = functools.partial(state.reduction.apply, pairs, lambda own: plain(own, *args, **kwargs))
        with state.reduced():
            if is_step is None:
                return plain_apply()
            with tf.init_scope():
                self._build([variable for _, variable in pairs])
            return self._applied(apply_if(is_step, plain_apply))

    def _aggregates(self, *args: Any, **kwargs: Any) -> bool:
        raise NotImplementedError

    def _build(self, variables: List[Any]) -> None:
        raise NotImplementedError

    def _build_if_first(self, pairs: Pairs) -> None:
        """Creates the optimizer's variables, where Keras does so before it aggregates."""

    def _applied(self, operation: Any) -> Any:
        return operation


class Keras2(_ReducesFirst):
    """The mixin for classes that have `aggregate_gradients`."""

    def aggregate_gradients(self, grads_and_vars: Any) -> Any:
        """As the plain optimizer's, and reduced over all ranks. Collective."""
        state = state_of(self)
        if not state.is_reduced:  # a LossScaleOptimizer will look whether they are finite
            grads_and_vars = state.reduction.agree_on_finite(state.reduce(grads_and_vars, self))
        return super().aggregate_gradients(grads_and_vars)  # type: ignore[misc]

    def _aggregates(
        self,
        name: Any = None,
        skip_gradients_aggregation: bool = False,
        experimental_aggregate_gradients: bool = True,
        **kwargs: Any,
    ) -> bool:
        return experimental_aggregate_gradients and not skip_gradients_aggregation

    def _build(self, variables: List[Any]) -> None:
        self.build(variables)  # type: ignore[attr-defined]

    def _applied(self, operation: Any) -> Any:
        return self.iterations  # type: ignore[attr-defined]


class Legacy(_ReducesFirst):
    """The mixin for classes that have `_aggregate_gradients`."""

    def _aggregate_gradients(self, grads_and_vars: Any) -> Any:
        """As the plain optimizer's, and reduced over all ranks. Collective."""
        state = state_of(self)
        pairs = grads_and_vars if state.is_reduced else state.reduce(grads_and_vars, self)
        return super()._aggregate_gradients(pairs)  # type: ignore[misc]

    def _aggregates(
        self, name: Any = None, experimental_aggregate_gradients: bool = True, **kwargs: Any
    ) -> bool:
        return experimental_aggregate_gradients

    def _build(self, variables: List[Any]) -> None:
        self._create_all_weights(variables)  # type: ignore[attr-defined]

    def _build_if_first(self, pairs: Pairs) -> None:
        # All ranks compare them, and some may have created one, or restored them.
        variables = [variable for gradient, variable in pairs if gradient is not None]
        if variables:
            with tf.name_scope(self._name), tf.init_scope():  # type: ignore[attr-defined]
                self._build(variables)

    def __deepcopy__(self, memo: Any) -> Any:
        # Keras's own version creates an object of the plain class, which does not reduce.
        copy = super().__deepcopy__(memo)  # type: ignore[misc]
        make_distributed(copy, Legacy, state_of(self).copy())
        return copy

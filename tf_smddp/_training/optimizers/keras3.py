"""The optimizers of Keras 3.

Gradients are reduced first of all in `apply_gradients`, which `fit` calls, or else in `apply`, and so before
what a subclass does in its own; clipping, weight decay and averages come after it. With
`gradient_accumulation_steps`, the mean over the steps is reduced in the step that applies it, before Keras
clips it; only a subclass's own `apply_gradients` and `apply` see this rank's gradients then. The counter of
steps is equal on all ranks, and so is the condition. The condition is a `tf.cond` of our own, so that the
branch with the collective does not wait for variables.

LossScaleOptimizer skips a step that is not finite, and applies the inner optimizer under that condition. So
the outer optimizer reduces there, in every step and before the check, so that all ranks make the same
decision. The inner one may be the distributed one, as under the policy mixed_float16, where `compile` wraps
it, and does not know the outer one. So Keras's own LossScaleOptimizer is extended: its `apply` reduces for a
distributed optimizer inside it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import importlib
from typing import Any, Callable, Iterator, List, Optional

import tensorflow as tf

from smddp import ReduceOp
from tf_smddp._training.optimizers.arguments import Reduction
from tf_smddp._training.optimizers.reclassing import (
    Distributed,
    has_ancestor,
    is_distributed,
    make_distributed,
    state_of,
)


@dataclasses.dataclass
class State:
    """The state of a distributed optimizer of Keras 3 in addition to the plain optimizer's."""

    reduction: Reduction
    # Whether the gradients for `apply` are reduced: by `apply_gradients`, or a LossScaleOptimizer around.
    is_reduced: bool = False
    # During an `apply` with accumulation: whether the means must be reduced, and the reduced means.
    accumulates: bool = False
    means: Optional[List[Any]] = None

    def copy(self) -> State:
        """Returns the state of another optimizer, which reduces in the same way."""
        return State(self.reduction)


def is_loss_scale_optimizer(value: Any) -> bool:
    """Returns whether this is Keras 3's LossScaleOptimizer, or a subclass of it."""
    return has_ancestor(value, "BaseOptimizer") and has_ancestor(value, "LossScaleOptimizer")


def distribute(optimizer: Any, reduction: Reduction, mixin: Optional[type] = None) -> None:
    """Makes an optimizer of Keras 3 reduce its gradients, by `mixin` unless it is a LossScaleOptimizer."""
    _extend_loss_scale_optimizer()
    if is_loss_scale_optimizer(optimizer):
        mixin = LossScale
    make_distributed(optimizer, mixin or Keras3, State(reduction))


class _ReducesFirst(Distributed):
    """Reduces in `apply_gradients`, and makes copies distributed, which Keras makes by saving a plain one."""

    def apply_gradients(self, grads_and_vars: Any, *args: Any, **kwargs: Any) -> Any:
        """As the plain optimizer's, with the gradients reduced over all ranks. Collective."""
        plain_apply, pairs = super().apply_gradients, list(grads_and_vars)  # type: ignore[misc]
        if not pairs or getattr(self, "gradient_accumulation_steps", None):
            return plain_apply(pairs, *args, **kwargs)
        gradients, variables = zip(*pairs)
        state = state_of(self)
        state.reduction.prepare(variables, self)
        reduced = reduce(state.reduction, list(gradients), list(variables))
        with already_reduced(self):
            return plain_apply(list(zip(reduced, variables)), *args, **kwargs)

    def __reduce__(self) -> Any:
        plain: Any = super().__reduce__()
        make = getattr(self.__class__, plain[0].__name__)  # of the plain class, which can be pickled
        return _make_copy, (make, plain[1], state_of(self).reduction)

    def __deepcopy__(self, memo: Any) -> Any:
        make, arguments = self.__reduce__()
        return make(*arguments)


def _make_copy(make: Callable[..., Any], arguments: Any, reduction: Reduction) -> Any:
    copy = make(*arguments)
    distribute(copy, reduction)
    return copy


class Keras3(_ReducesFirst):
    """The mixin for classes that have `apply`."""

    def apply(self, grads: Any, trainable_variables: Any = None) -> Any:
        """As the plain optimizer's, with the gradients reduced over all ranks. Collective."""
        plain_apply = super().apply  # type: ignore[misc]
        state = state_of(self)
        if state.is_reduced:
            return plain_apply(grads, trainable_variables)
        grads, variables = list(grads), _variables(self, trainable_variables)
        state.reduction.prepare(variables, self)
        if not self.gradient_accumulation_steps:  # type: ignore[attr-defined]
            return plain_apply(
                reduce(state.reduction, grads, variables), _given(trainable_variables, variables)
            )
        grads = _reduce_overwrites(state.reduction, grads, variables)
        state.accumulates = True
        try:
            return plain_apply(grads, _given(trainable_variables, variables))
        finally:
            state.accumulates, state.means = False, None

    def _backend_apply_gradients(self, grads: Any, trainable_variables: Any) -> Any:
        """Like the plain optimizer's; with accumulation, reduces the mean in the step that applies it."""
        state = state_of(self)
        if state.accumulates:
            steps = self.gradient_accumulation_steps  # type: ignore[attr-defined]
            means = [
                (tf.convert_to_tensor(gradient) + tf.convert_to_tensor(self._accumulated(variable))) / steps
                for gradient, variable in zip(grads, trainable_variables)
            ]
            count = tf.convert_to_tensor(self._iterations) + 1  # type: ignore[attr-defined]
            state.means = tf.cond(
                tf.equal(count % steps, 0),
                lambda: state.reduction(means, trainable_variables),
                lambda: means,
            )
        return super()._backend_apply_gradients(grads, trainable_variables)  # type: ignore[misc]

    def _clip_gradients(self, grads: Any) -> Any:
        """Like the plain optimizer's; with accumulation, clips the reduced means."""
        means = state_of(self).means
        return super()._clip_gradients(grads if means is None else means)  # type: ignore[misc]

    def _accumulated(self, variable: Any) -> Any:
        return self._accumulated_gradients[self._get_variable_index(variable)]  # type: ignore[attr-defined]


class LossScale(_ReducesFirst):
    """The mixin for LossScaleOptimizer whose inner optimizer is plain."""

    def apply(self, grads: Any, trainable_variables: Any = None) -> Any:
        """As the plain optimizer's, with the gradients reduced over all ranks first. Collective."""
        grads, variables = list(grads), _variables(self, trainable_variables)
        state = state_of(self)
        if not state.is_reduced:
            state.reduction.prepare(variables, self)
            grads = reduce(state.reduction, grads, variables)
        return super().apply(grads, _given(trainable_variables, variables))  # type: ignore[misc]


@functools.cache
def _extend_loss_scale_optimizer() -> None:
    kind = importlib.import_module("keras").optimizers.LossScaleOptimizer
    plain_apply = kind.apply

    @functools.wraps(plain_apply)
    def apply(self: Any, grads: Any, trainable_variables: Any = None) -> Any:
        inner = self.inner_optimizer
        if not is_distributed(inner):
            return plain_apply(self, grads, trainable_variables)
        if not is_distributed(self):
            variables, reduction = _variables(self, trainable_variables), state_of(inner).reduction
            reduction.prepare(variables, self)
            pairs = reduction.agree_on_finite(list(zip(reduce(reduction, list(grads), variables), variables)))
            grads = [gradient for gradient, _ in pairs]
            trainable_variables = _given(trainable_variables, variables)
        with already_reduced(inner):
            return plain_apply(self, grads, trainable_variables)

    kind.apply = apply


def _variables(optimizer: Any, trainable_variables: Any) -> List[Any]:
    given = optimizer._trainable_variables if trainable_variables is None else trainable_variables
    return list(given)


def _given(trainable_variables: Any, variables: List[Any]) -> Optional[List[Any]]:
    """Returns the variables as the plain `apply` expects them: None if the user has passed none."""
    return None if trainable_variables is None else variables


def _is_overwritten(variable: Any) -> bool:
    return bool(getattr(variable, "overwrite_with_gradient", False))


def _reduce_overwrites(reduction: Reduction, gradients: List[Any], variables: List[Any]) -> List[Any]:
    """Reduces the "gradients" that are a variable's next value: float8 scales and histories of maxima.

    They are reduced with MAX, as Keras combines them over accumulated steps.
    """
    chosen = [i for i, variable in enumerate(variables) if _is_overwritten(variable)]
    result = list(gradients)
    reduced = reduction([gradients[i] for i in chosen], [variables[i] for i in chosen], ReduceOp.MAX)
    for i, value in zip(chosen, reduced):
        result[i] = value
    return result


def reduce(reduction: Reduction, gradients: List[Any], variables: List[Any]) -> List[Any]:
    """Reduces gradients, and what takes their place for some variables. Collective."""
    result = _reduce_overwrites(reduction, gradients, variables)
    rest = [i for i in range(len(gradients)) if i >= len(variables) or not _is_overwritten(variables[i])]
    reduced = reduction([gradients[i] for i in rest], [variables[i] for i in rest if i < len(variables)])
    for i, value in zip(rest, reduced):
        result[i] = value
    return result


@contextlib.contextmanager
def already_reduced(optimizer: Any) -> Iterator[None]:
    """Within it, the distributed `optimizer` does not reduce in `apply`."""
    state = state_of(optimizer)
    state.is_reduced = True
    try:
        yield
    finally:
        state.is_reduced = False

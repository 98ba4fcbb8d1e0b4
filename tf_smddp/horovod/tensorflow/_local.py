"""Gradients that are not reduced: those of local variables, and all of ranks outside of the process set."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar, Dict, List, Optional, Sequence

import tensorflow as tf

from tf_smddp import ProcessSet, ReduceOp
from tf_smddp._guards.gradient_use import note_apart
from tf_smddp._training.optimizers.arguments import Reduction
from tf_smddp._training.optimizers.reclassing import is_distributed, state_of


class LocalVariables:
    """The variables of some layers, and others that were added. They are compared by identity."""

    def __init__(self, layers: Any = None) -> None:
        """Begins with layers: one, a list of them, or None. Their weights are read when they are needed."""
        given = layers if isinstance(layers, (list, tuple, set)) else [layers]
        self._layers = [layer for layer in given if layer is not None]
        self._added: Dict[int, Any] = {}

    def add(self, variable: Any) -> None:
        """Adds a variable."""
        self._added[id(variable)] = variable

    def __contains__(self, variable: Any) -> bool:
        return id(variable) in self._added or any(
            each is variable for layer in self._layers for each in layer.trainable_weights
        )


def divided(gradient: Any, divisor: int) -> Any:
    """The gradient of a local variable: a tensor, tf.IndexedSlices or None, divided."""
    if gradient is None or divisor == 1:
        return gradient
    if isinstance(gradient, tf.IndexedSlices):
        return tf.IndexedSlices(gradient.values / divisor, gradient.indices, gradient.dense_shape)
    return gradient / divisor


@dataclasses.dataclass(frozen=True)
class _Reduction(Reduction):
    """The reduction of an optimizer. It leaves local variables, and ranks outside of the set, alone."""

    local: LocalVariables = dataclasses.field(default_factory=LocalVariables)
    divisor: int = 1
    is_member: bool = True
    broadcast_may_follow: ClassVar[bool] = True  # as in Horovod's own loop

    def prepare(self, variables: Sequence[Any], optimizer: Any) -> None:
        note_apart([each for each in variables if not self.is_member or each in self.local])
        if not self.is_member:
            return
        shared = [variable for variable in variables if variable not in self.local]
        # The optimizer has moments of local variables, too, which are each rank's own.
        super().prepare(shared, optimizer if len(shared) == len(variables) else None)

    def __call__(
        self, gradients: Sequence[Any], variables: Sequence[Any], op: Optional[ReduceOp] = None
    ) -> List[Any]:
        if not self.is_member:
            return list(gradients)
        local = [i for i, variable in enumerate(variables) if variable in self.local]
        shared = [i for i in range(len(gradients)) if i not in local]
        reduced = super().__call__(
            [gradients[i] for i in shared], [variables[i] for i in shared if i < len(variables)], op
        )
        results = list(gradients)
        for i in local:
            results[i] = divided(results[i], self.divisor)
        for i, result in zip(shared, reduced):
            results[i] = result
        return results


def keep_local(
    optimizer: Any, process_set: ProcessSet, scale_local_gradients: bool, local_layers: Any = None
) -> None:
    """Makes a distributed optimizer keep local gradients, and gives it `register_local_var`."""
    local = LocalVariables(local_layers)
    for each in (optimizer, getattr(optimizer, "inner_optimizer", None)):
        if each is not None and is_distributed(each):
            state = state_of(each)
            plain = state.reduction
            state.reduction = _Reduction(
                plain.node_name,
                plain.compression,
                plain.op,
                plain.sparse_as_dense,
                plain.process_set,
                local,
                process_set.size() if scale_local_gradients else 1,
                process_set.included(),
            )
    # setattr would not do: the optimizers' own version tracks values for checkpoints.
    object.__setattr__(optimizer, "register_local_var", local.add)

"""The arguments of DistributedOptimizer: checked once, then used for every step."""

from __future__ import annotations

import dataclasses
import math
import numbers
import operator
from typing import Any, Callable, ClassVar, List, Optional, Sequence, Tuple

import tensorflow as tf

from smddp import WORLD
from smddp.process_sets import ProcessSet, communicator_of
from smddp.requests import ReduceOp, resolve_reduce_op
from tf_smddp._collectives.compression import compressor_around_op
from tf_smddp._graphs.call_site import check_call_site
from tf_smddp._guards.callbacks_beside import warn_within_fit
from tf_smddp._guards.gradient_use import note_apart, note_optimizer
from tf_smddp._guards.loop_check import before_eager_reduction
from tf_smddp._guards.periodic_check import check
from tf_smddp._guards.start_weights import make_equal
from tf_smddp._training.optimizers.reclassing import Averages, is_distributed
from tf_smddp._training.reduce_gradients import reduce_gradients

Pairs = List[Tuple[Any, Any]]

_CALLER = "DistributedOptimizer"
# The bucket cap must be a multiple of this.
_BUCKET_UNIT_BYTES = 128


@dataclasses.dataclass(frozen=True)
class Reduction:
    """The settings with which one optimizer's gradients are reduced."""

    node_name: str
    compression: Any
    op: ReduceOp
    sparse_as_dense: bool
    process_set: Optional[ProcessSet] = None
    # As in `make_equal`.
    broadcast_may_follow: ClassVar[bool] = False

    def prepare(self, variables: Sequence[Any], optimizer: Any) -> None:
        """Sees to it, once, that all ranks begin with the same values. Before anything is reduced.

        And warns of what else would make ranks differ, as far as it is seen here.

        Args:
            variables: what is trained.
            optimizer: what trains them.
        """
        check_call_site(_CALLER)
        note_optimizer(variables, _CALLER)
        warn_within_fit()
        if communicator_of(self.process_set, _CALLER) == WORLD:
            make_equal(variables, _CALLER, optimizer, self.broadcast_may_follow)
        else:
            note_apart(variables)

    def __call__(
        self, gradients: Sequence[Any], variables: Sequence[Any], op: Optional[ReduceOp] = None
    ) -> List[Any]:
        """Reduces the gradients of one step. Collective, unless all are None.

        Args:
            gradients: tensors, tf.IndexedSlices, or None, which stays None.
            variables: the variables of these gradients, for error messages; the list may be shorter.
            op: how to combine them, if not with the user's op.

        Returns:
            The reductions in the same order.
        """
        check_call_site(_CALLER)
        if op is None and communicator_of(self.process_set, _CALLER) == WORLD:
            before_eager_reduction()
            check(variables, gradients, _CALLER)
        return self._reduce(gradients, variables, op or self.op)

    def _reduce(self, gradients: Sequence[Any], variables: Sequence[Any], op: ReduceOp) -> List[Any]:
        return reduce_gradients(
            gradients,
            variables,
            self.compression,
            op,
            self.sparse_as_dense,
            self.node_name,
            communicator_of(self.process_set, _CALLER),
        )

    def apply(self, pairs: Pairs, plain_apply: Callable[[Pairs], Any], is_step: Any = None) -> Any:
        """Applies reduced gradients: returns what `plain_apply` returns for (gradient, variable) pairs.

        Args:
            pairs: what was reduced, with the user's variables.
            plain_apply: the plain optimizer's method.
            is_step: whether it changes variables, rather than accumulates; None: it does.
        """
        return plain_apply(pairs)

    def like(self, total: tf.Tensor, variable: Any) -> tf.Tensor:
        """Returns a tensor that has the shape of the reduction of a variable's gradient."""
        return total

    def agree_on_finite(self, pairs: Pairs) -> Pairs:
        """Returns pairs of which a gradient is not finite on all ranks, or on none."""
        return pairs


def reduces(optimizer: Any) -> bool:
    """Returns whether the optimizer, or the one that it wraps, is distributed or one of LocalSGD."""
    inner = [getattr(optimizer, "inner_optimizer", None)]
    if not tf.compat.v1.executing_eagerly_outside_functions():
        inner.append(
            getattr(optimizer, "optimizer", None)
        )  # Keras 2's TFOptimizer, which reduces in v1 graphs
    return any(is_distributed(each) or isinstance(each, Averages) for each in (optimizer, *inner))


def make_reduction(
    name: Optional[str],
    compression: Any,
    sparse_as_dense: bool,
    op: Optional[ReduceOp],
    process_set: Optional[ProcessSet],
) -> Reduction:
    """Checks these arguments of DistributedOptimizer.

    Raises:
        TypeError: one is of a wrong type.
    """
    if name is not None and not isinstance(name, str):
        raise TypeError(f"DistributedOptimizer needs name as a string or None, but got {name!r}.")
    compressor_around_op(compression)
    return Reduction(name or _CALLER, compression, resolve_reduce_op(op), bool(sparse_as_dense), process_set)


def check_bucket_cap(bucket_cap_mb: Any) -> None:
    """Raises unless it is a positive number of MiB that is a multiple of 128 bytes.

    Raises:
        TypeError: it is not a number.
        ValueError: it is not such a number.
    """
    if isinstance(bucket_cap_mb, bool) or not isinstance(bucket_cap_mb, numbers.Real):
        raise TypeError(f"bucket_cap_mb must be a number of MiB, but is {bucket_cap_mb!r}.")
    size = float(bucket_cap_mb) * 1024 * 1024
    if not (math.isfinite(size) and size > 0 and size % _BUCKET_UNIT_BYTES == 0):
        raise ValueError(
            f"bucket_cap_mb * 1024 * 1024 must be a positive multiple of {_BUCKET_UNIT_BYTES}, but "
            f"bucket_cap_mb={bucket_cap_mb!r} gives {size!r}. Pass a whole number, such as 25."
        )


def check_passes(backward_passes_per_step: Any, sparse_as_dense: bool) -> int:
    """Returns the number of backward passes per step.

    Raises:
        TypeError: it is not an integer.
        ValueError: it is less than 1, or more than 1 while sparse gradients are to stay sparse.
    """
    try:
        passes = operator.index(backward_passes_per_step)
    except TypeError:
        raise TypeError(
            f"backward_passes_per_step must be an integer, but is {backward_passes_per_step!r}."
        ) from None
    if passes < 1:
        raise ValueError(f"backward_passes_per_step must be at least 1, but is {passes}.")
    if passes > 1 and not sparse_as_dense:
        raise ValueError(
            f"backward_passes_per_step={passes} adds gradients up in dense tensors, which "
            "sparse_as_dense=False rules out. Leave one of the two at its default."
        )
    return passes

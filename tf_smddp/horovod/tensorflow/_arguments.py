"""Arguments of several of Horovod's functions."""

from __future__ import annotations

import warnings
from typing import Any, Optional

from tf_smddp import ReduceOp, global_process_set


class _Adasum:
    """Stands for Horovod's operation Adasum, which is refused where it is used."""

    def __repr__(self) -> str:
        return "hvd.Adasum"


Adasum = _Adasum()


def op_of(average: Optional[bool], op: Optional[ReduceOp]) -> ReduceOp:
    """Returns the operation for Horovod's `op`, and `average`, which came before it.

    Raises:
        ValueError: both are given.
        NotImplementedError: `op` is Adasum.
        TypeError: `op` is none of Average, Sum, Min, Max and Product.
    """
    if average is not None:
        if op is not None:
            raise ValueError("The op parameter supersedes average: give only one of them.")
        warnings.warn("Parameter `average` has been replaced with `op`.", DeprecationWarning, stacklevel=3)
        return ReduceOp.AVERAGE if average else ReduceOp.SUM
    if op is None:
        return ReduceOp.AVERAGE
    if isinstance(op, _Adasum):
        raise NotImplementedError(
            "hvd.Adasum is not available in tf_smddp. Use op=hvd.Average with a learning rate that is "
            "scaled and warmed up, in Keras by tf_smddp.keras.callbacks.LearningRateWarmupCallback."
        )
    if not isinstance(op, ReduceOp):
        raise TypeError(f"op must be one of hvd.Average, Sum, Min, Max and Product, but is {op!r}.")
    return op


def set_of(process_set: Any) -> Any:
    """Returns what tf_smddp takes for a process set of Horovod's API."""
    return None if process_set is global_process_set else process_set

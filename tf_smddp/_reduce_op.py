"""ReduceOp: how the ranks' tensors are combined."""

from __future__ import annotations

import enum
from typing import Optional


class ReduceOp(enum.Enum):
    """How a reduction combines the tensors of all ranks, element by element.

    float16 and bfloat16 are added up in float32 and rounded once. Integers wrap; but their average is that of
    the exact sum, cut towards zero. MIN and MAX hand a NaN on. bool has MIN (logical and) and MAX (logical
    or) only; complex types have neither.
    """

    AVERAGE = "average"
    SUM = "sum"
    MIN = "min"
    MAX = "max"
    PRODUCT = "product"


def resolve_reduce_op(op: Optional[ReduceOp]) -> ReduceOp:
    """Returns the ReduceOp that a user's `op=` argument means; None is AVERAGE.

    Raises:
        TypeError: `op` is neither None nor a ReduceOp.
    """
    if op is None:
        return ReduceOp.AVERAGE
    if not isinstance(op, ReduceOp):
        names = ", ".join(f"ReduceOp.{member.name}" for member in ReduceOp)
        raise TypeError(f"op must be one of {names} or None, but is {op!r}.")
    return op

"""The ops of the library as Python functions, and what TensorFlow must know about them.

Place in the stack: directly above the op library; everything that emits one of its ops does it here. Not
here: which ticket an op carries (_tickets.py), checks of users' arguments (the module of each collective).
"""

from __future__ import annotations

from typing import List, Sequence

import tensorflow as tf
from tensorflow.python.framework import auto_control_deps

from tf_smddp import _library
from tf_smddp._reduce_op import ReduceOp

_ops = _library.load()[0]

# Automatic control dependencies run stateful ops one after another, which would let no two gradients be in
# flight at once. The ops named here are stateful all the same: a constant input is not folded and twins are
# not merged. The price: one whose result nobody uses is pruned. Broadcast and barrier must run, so they are
# not named.
auto_control_deps.ASYNC_STATEFUL_OPS |= {"SmddpAllreduce", "SmddpGroupedAllreduce"}

# What the ops take, see ops/.
SUPPORTED_DTYPES = (
    tf.float16,
    tf.bfloat16,
    tf.float32,
    tf.float64,
    tf.int32,
    tf.int64,
    tf.uint8,
    tf.bool,
)


def ticket() -> tf.Tensor:
    """Draws the next ticket of this rank: an int64 scalar."""
    return _ops.smddp_ticket(name="SmddpTicket")


def allreduce(
    tensor: tf.Tensor,
    group_ticket: tf.Tensor,
    reduce_op: ReduceOp,
    param_index: int,
    num_params: int,
    tensor_name: str,
    name: str,
) -> tf.Tensor:
    """Emits one SmddpAllreduce; `tensor_name` pairs it when the ticket is -1, `name` is the node's."""
    return _ops.smddp_allreduce(
        tensor=tensor,
        ticket=group_ticket,
        reduce_op=reduce_op.value,
        param_index=param_index,
        num_params=num_params,
        tensor_name=tensor_name,
        name=name,
    )


def grouped_allreduce(
    tensors: Sequence[tf.Tensor], group_ticket: tf.Tensor, reduce_op: ReduceOp, tensor_names: Sequence[str]
) -> List[tf.Tensor]:
    """Emits one SmddpGroupedAllreduce for a whole group."""
    return list(
        _ops.smddp_grouped_allreduce(
            tensors=list(tensors),
            ticket=group_ticket,
            reduce_op=reduce_op.value,
            tensor_names=list(tensor_names),
        )
    )


def broadcast(
    tensor: tf.Tensor, root_rank: int, tensor_name: str, pair_by_name: bool, name: str
) -> tf.Tensor:
    """Emits one SmddpBroadcast."""
    return _ops.smddp_broadcast(
        tensor=tensor, root_rank=root_rank, tensor_name=tensor_name, pair_by_name=pair_by_name, name=name
    )


def barrier(tensor_name: str, pair_by_name: bool, name: str) -> tf.Operation | None:
    """Emits one SmddpBarrier; the operation in a graph, None in eager mode, where it has then happened."""
    return _ops.smddp_barrier(tensor_name=tensor_name, pair_by_name=pair_by_name, name=name)


def check_dtype(tensor: tf.Tensor, caller: str) -> None:
    """Raises a TypeError that names the dtype, unless the ops take it."""
    if tensor.dtype.base_dtype not in SUPPORTED_DTYPES:
        names = ", ".join(dtype.name for dtype in SUPPORTED_DTYPES)
        raise TypeError(
            f"tf_smddp.{caller}() does not take a tensor of type {tensor.dtype.name}, only: {names}."
        )

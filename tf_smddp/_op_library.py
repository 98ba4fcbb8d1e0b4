"""The ops of the library as Python functions, and what TensorFlow must know about them.

Place in the stack: directly above the op library; everything that emits one of its ops does it here. Not
here: which ticket an op carries (_tickets.py), checks of users' arguments (the module of each collective).
"""

from __future__ import annotations

import functools
from typing import Any, Callable, ContextManager, Dict, List, Optional, Sequence, Tuple, TypeVar, cast

import tensorflow as tf
from tensorflow.core.framework import attr_value_pb2
from tensorflow.python.eager import context
from tensorflow.python.framework import auto_control_deps

from tf_smddp import _compiled_order, _functions, _library
from tf_smddp._reduce_op import ReduceOp
from tf_smddp._scaling import NONE, Scaling

_ops = _library.load()[0]

# Automatic control dependencies run stateful ops one after another, which would let no two gradients be in
# flight at once. The ops named here are stateful all the same: a constant input is not folded and twins are
# not merged. The price: one whose result nobody uses is pruned (not in a function that XLA compiles). These
# are the ops that take a ticket, and the one that stands in for it: what they meet is settled by the
# ticket's place in the program, and not by theirs. Broadcast, barrier and out-of-band allreduce must run,
# and in order, so they are not named.
auto_control_deps.ASYNC_STATEFUL_OPS |= {*_functions.TAKES_TICKET, "SmddpStepMark", "SmddpChain"}

# What the ops take, see ops/.
SUPPORTED_DTYPES = (
    tf.float16,
    tf.bfloat16,
    tf.float32,
    tf.float64,
    tf.int8,
    tf.int16,
    tf.int32,
    tf.int64,
    tf.uint8,
    tf.uint16,
    tf.uint32,
    tf.uint64,
    tf.bool,
    tf.complex64,
    tf.complex128,
)


Function = TypeVar("Function", bound=Callable[..., Any])


# What tf.xla.experimental.jit_scope(compile_ops=False) gives to the ops in it. A function that is compiled as
# a whole (jit_compile=True) takes no notice of it.
_NOT_CLUSTERED = {"_XlaCompile": attr_value_pb2.AttrValue(b=False)}


def _on_cpu(emit: Function) -> Function:
    """Decorator for what emits an op: puts it on the CPU, in any device scope, and outside of XLA's clusters.

    The CPU: it has the only kernels. TensorFlow would do so by itself, but not where soft placement is off:
    that is the default of v1 sessions. It copies inputs from other devices, and results to them. An eager
    call outside of a scope is left alone.

    Clusters: auto-clustering would take in an op that XLA can compile, and wait for its communication in the
    middle of the cluster. So it splits there.
    """

    @functools.wraps(emit)
    def placed(*args: Any, **kwargs: Any) -> Any:
        # What TensorFlow's own functions of ops look at; the public ways to ask cost twice as much.
        thread = context.context()._thread_local_data
        if thread.is_eager:
            if not thread.device_name:
                return emit(*args, **kwargs)
            with tf.device("CPU:0"):
                return emit(*args, **kwargs)
        graph = tf.compat.v1.get_default_graph()
        with tf.device("CPU:0"), graph._attr_scope(_NOT_CLUSTERED):
            if _compiled_order.is_compiled(graph):
                return _compiled_order.emit(graph, emit, args, kwargs)
            return emit(*args, **kwargs)

    return cast(Function, placed)


def in_xla_context() -> bool:
    """Whether the graph that is being built is one that XLA compiles as a whole."""
    if tf.executing_eagerly():
        return False
    return _compiled_order.is_compiled(tf.compat.v1.get_default_graph())


@_on_cpu
def ticket(communicator: int = 0) -> tf.Tensor:
    """Draws the next ticket of this rank: an int64 scalar."""
    return _ops.smddp_ticket(communicator=communicator, eager=tf.executing_eagerly(), name="SmddpTicket")


@_on_cpu
def step_mark(communicator: int) -> tf.Tensor:
    """What an op that pairs by name has instead of a ticket: an int64 scalar, -1."""
    # It runs at the beginning of the step, whatever its op waits for.
    with tf.control_dependencies(None):
        return _ops.smddp_step_mark(communicator=communicator, name="SmddpStepMark")


@_on_cpu
def allreduce(
    tensor: tf.Tensor,
    group_ticket: tf.Tensor,
    reduce_op: ReduceOp,
    param_index: int,
    num_params: int,
    tensor_name: str,
    name: str,
    communicator: int = 0,
    scaling: Scaling = NONE,
) -> tf.Tensor:
    """Emits one SmddpAllreduce; `tensor_name` pairs it when the ticket is -1, `name` is the node's."""
    return _ops.smddp_allreduce(
        tensor=tensor,
        ticket=group_ticket,
        reduce_op=reduce_op.value,
        param_index=param_index,
        num_params=num_params,
        **_one_label(tensor_name),
        factors=scaling.inputs(),
        communicator=communicator,
        eager=tf.executing_eagerly(),
        name=name,
    )


@_on_cpu
def grouped_allreduce(
    tensors: Sequence[tf.Tensor],
    group_ticket: tf.Tensor,
    reduce_op: ReduceOp,
    tensor_names: Sequence[str],
    name: Optional[str] = None,
    communicator: int = 0,
    scaling: Scaling = NONE,
) -> List[tf.Tensor]:
    """Emits one SmddpGroupedAllreduce for a whole group."""
    return list(
        _ops.smddp_grouped_allreduce(
            tensors=list(tensors),
            ticket=group_ticket,
            reduce_op=reduce_op.value,
            **_labels(tensor_names),
            factors=scaling.inputs(),
            communicator=communicator,
            eager=tf.executing_eagerly(),
            name=name,
        )
    )


@_on_cpu
def oob_allreduce(
    tensors: Sequence[tf.Tensor],
    reduce_op: ReduceOp,
    tensor_names: Sequence[str],
    pair_by_name: bool,
    name: Optional[str],
    communicator: int = 0,
) -> List[tf.Tensor]:
    """Emits one SmddpOobAllreduce; in eager mode one for each tensor.

    In eager mode each tensor stands for itself: when one fails, those after it must not have been submitted,
    or they would meet what comes next on the other ranks.
    """
    names = list(tensor_names)
    if tf.executing_eagerly():
        parts = [(i, [tensor], names[i : i + 1]) for i, tensor in enumerate(tensors)]
    else:
        parts = [(0, list(tensors), names)]
    reduced: List[tf.Tensor] = []
    with _marked(pair_by_name, communicator):
        for first, some, their_names in parts:
            reduced += _ops.smddp_oob_allreduce(
                tensors=some,
                reduce_op=reduce_op.value,
                param_index=first,
                num_params=len(tensors),
                **_labels(their_names),
                pair_by_name=pair_by_name,
                communicator=communicator,
                eager=tf.executing_eagerly(),
                name=name,
            )
    return reduced


@_on_cpu
def overlap(tensor: tf.Tensor) -> tf.Tensor:
    """Emits one SmddpOverlap."""
    return _ops.smddp_overlap(tensor=tensor, name="SmddpOverlap")


@_on_cpu
def allgather(
    tensors: Sequence[tf.Tensor],
    group_ticket: tf.Tensor,
    tensor_names: Sequence[str],
    name: Optional[str] = None,
    communicator: int = 0,
) -> List[tf.Tensor]:
    """Emits one SmddpAllgather for a whole group."""
    return list(
        _ops.smddp_allgather(
            tensors=list(tensors),
            ticket=group_ticket,
            **_labels(tensor_names),
            communicator=communicator,
            eager=tf.executing_eagerly(),
            name=name,
        )
    )


@_on_cpu
def reducescatter(
    tensors: Sequence[tf.Tensor],
    group_ticket: tf.Tensor,
    reduce_op: ReduceOp,
    tensor_names: Sequence[str],
    name: Optional[str] = None,
    communicator: int = 0,
    scaling: Scaling = NONE,
) -> List[tf.Tensor]:
    """Emits one SmddpReducescatter for a whole group."""
    return list(
        _ops.smddp_reducescatter(
            tensors=list(tensors),
            ticket=group_ticket,
            reduce_op=reduce_op.value,
            **_labels(tensor_names),
            factors=scaling.inputs(),
            communicator=communicator,
            eager=tf.executing_eagerly(),
            name=name,
        )
    )


@_on_cpu
def alltoall(
    tensor: tf.Tensor,
    splits: tf.Tensor,
    group_ticket: tf.Tensor,
    tensor_name: str,
    name: str,
    communicator: int = 0,
) -> Tuple[tf.Tensor, tf.Tensor]:
    """Emits one SmddpAlltoall: (output, received splits). Without splits the rows are split evenly."""
    result = _ops.smddp_alltoall(
        tensor=tensor,
        splits=splits,
        ticket=group_ticket,
        **_one_label(tensor_name),
        communicator=communicator,
        eager=tf.executing_eagerly(),
        name=name,
    )
    return result.output, result.received_splits


@_on_cpu
def broadcast(
    tensor: tf.Tensor,
    root_rank: int,
    tensor_name: str,
    pair_by_name: bool,
    name: str,
    communicator: int = 0,
    param_index: int = 0,
    num_params: int = 1,
) -> tf.Tensor:
    """Emits one SmddpBroadcast."""
    with _marked(pair_by_name, communicator):
        return _ops.smddp_broadcast(
            tensor=tensor,
            root_rank=root_rank,
            param_index=param_index,
            num_params=num_params,
            **_one_label(tensor_name),
            pair_by_name=pair_by_name,
            communicator=communicator,
            eager=tf.executing_eagerly(),
            name=name,
        )


@_on_cpu
def barrier(tensor_name: str, pair_by_name: bool, name: str, communicator: int = 0) -> tf.Operation | None:
    """Emits one SmddpBarrier; the operation in a graph, None in eager mode, where it has then happened."""
    with _marked(pair_by_name, communicator):
        return _ops.smddp_barrier(
            **_one_label(tensor_name),
            pair_by_name=pair_by_name,
            communicator=communicator,
            eager=tf.executing_eagerly(),
            name=name,
        )


def _labels(names: Sequence[str]) -> Dict[str, Any]:
    """The arguments for an op's labels: an input in eager mode, else an attribute.

    In eager mode TensorFlow keeps a kernel for each combination of attributes, for ever. In a graph, XLA takes
    no strings as inputs.
    """
    if tf.executing_eagerly():
        return {"labels": [list(names)] if any(names) else []}
    return {"labels": [], "tensor_names": list(names)}


def _one_label(name: str) -> Dict[str, Any]:
    """As _labels, for an op of one tensor."""
    if tf.executing_eagerly():
        return {"labels": [[name]] if name else []}
    return {"labels": [], "tensor_name": name}


def _marked(pair_by_name: bool, communicator: int) -> ContextManager[None]:
    """Where an op without a ticket that pairs by name is to be made: behind a step mark of its own."""
    return tf.control_dependencies([step_mark(communicator)] if pair_by_name else [])


def check_dtype(tensor: tf.Tensor, caller: str) -> None:
    """Raises a TypeError that names the dtype, unless the ops take it."""
    if tensor.dtype.base_dtype not in SUPPORTED_DTYPES:
        names = ", ".join(dtype.name for dtype in SUPPORTED_DTYPES)
        raise TypeError(
            f"tf_smddp.{caller}() does not take a tensor of type {tensor.dtype.name}, only: {names}."
        )

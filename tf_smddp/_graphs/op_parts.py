"""The parts that the makers of all ops share: placement, labels, and the ticket op.

Place in the stack: directly above the op library. A collective's own module makes its op, and registers its
gradient. Which ops draw or take a ticket follows from their definitions (function_graphs.py). Not here: which
ticket an op carries (tickets.py), checks of users' arguments (the module of each collective).
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import re
from typing import Any, Callable, ContextManager, Dict, Sequence, Tuple, TypeVar, cast

import tensorflow as tf

from tf_smddp._base import op_library, tensorflow_private
from tf_smddp._graphs import compiled_order, function_graphs

# The ops as Python functions: smddp_allreduce and so on.
ops, _lib = op_library.load()

# Automatic control dependencies run stateful ops one after another, so that no two gradients would be under
# way at once. They leave the ops named here unordered, which stay stateful: a constant input is not folded,
# and equal ops are not merged. But an op whose result nobody uses is pruned (not in a function that XLA
# compiles). These are the ops that take a ticket, since the ticket's place in the program decides what they
# meet, and the ops that stand in for tickets and order. Broadcast, barrier and out-of-band allreduce are not
# named: they must run, and in order.
tensorflow_private.leave_unordered({*function_graphs.TAKES_TICKET, "SmddpStepMark", "SmddpChain"})

_TICKET_NUMBER_BITS = 40  # kernels/control/ticket.h

Function = TypeVar("Function", bound=Callable[..., Any])


HAS_GPU_KERNELS = tf.test.is_built_with_cuda() and bool(_lib.tf_smddp_has_gpu_kernels())
_MOST_REASON_BYTES = 1000


def placement() -> ContextManager[Any]:
    """The device scope for our ops.

    Where TensorFlow and the machine are for CUDA, there are kernels for GPUs, and TensorFlow places the op as
    its own. Else only the CPU has kernels. TensorFlow would place the op there by itself, but not where soft
    placement is off, as in v1 sessions by default. It copies inputs from other devices, and results to them.
    """
    return contextlib.nullcontext() if HAS_GPU_KERNELS else tf.device("CPU:0")


def _first_cause(message: str) -> str:
    """The cause without the ranks that have told of it, and without the places where TensorFlow found it."""
    cause = message.rsplit(" could not begin a collective: ", 1)[-1]
    cause = re.sub(r"\{\{function_node .*?\}\} ", "", cause)
    return re.split(r"\n\t \[\[| \[Op:", cause, maxsplit=1)[0]


def _telling(emit: Function) -> Function:
    """Has an eager op tell the other ranks if TensorFlow fails it, and they would wait (eager_ops.h)."""
    signature = inspect.signature(emit)
    if "communicator" not in signature.parameters:
        return emit

    @functools.wraps(emit)
    def emit_and_tell(*args: Any, **kwargs: Any) -> Any:
        call = signature.bind(*args, **kwargs)
        call.apply_defaults()
        communicator = call.arguments["communicator"]
        known = _lib.tf_smddp_eager_ops(communicator)
        try:
            return emit(*args, **kwargs)
        except tf.errors.OpError as error:
            if _lib.tf_smddp_eager_ops(communicator) == known:
                reason = _first_cause(error.message).encode()[:_MOST_REASON_BYTES]
                _lib.smddp_fail(communicator, reason)
            raise

    return cast(Function, emit_and_tell)


def placed(emit: Function) -> Function:
    """Decorates a function that makes an op: it is put where placement() says, in no cluster of XLA's.

    An eager call outside of a device scope is left alone.

    Auto-clustering would take in an op that XLA can compile, and would wait for its communication in the
    middle of the cluster.
    """
    emit_eagerly = _telling(emit) if HAS_GPU_KERNELS else emit

    @functools.wraps(emit)
    def emit_placed(*args: Any, **kwargs: Any) -> Any:
        device = tensorflow_private.eager_device()
        if device is not None:
            if not device:
                return emit_eagerly(*args, **kwargs)
            with placement():
                return emit_eagerly(*args, **kwargs)
        graph = tf.compat.v1.get_default_graph()
        with placement(), tensorflow_private.not_clustered(graph):
            if compiled_order.is_compiled(graph):
                return compiled_order.emit(graph, emit, args, kwargs)
            return emit(*args, **kwargs)

    return cast(Function, emit_placed)


def in_xla_context() -> bool:
    """Whether the graph that is being built is one that XLA compiles as a whole."""
    if tf.executing_eagerly():
        return False
    return compiled_order.is_compiled(tf.compat.v1.get_default_graph())


@placed
def ticket(communicator: int = 0) -> tf.Tensor:
    """In a graph, draws the next ticket of this rank: an int64 scalar."""
    return ops.smddp_ticket(communicator=communicator, name="SmddpTicket")


@functools.lru_cache(maxsize=1)
def eager_ticket() -> tf.Tensor:
    """Stands in for a ticket in eager mode, where each op draws its own: an int64 scalar, -2."""
    # On a GPU, threads may get each other's inputs (kernels/tf/ticket_value.h).
    with tf.device("CPU:0"):
        return tf.constant(-2, tf.int64)


def next_ticket() -> Tuple[int, int]:
    """The incarnation and the number of the next ticket of all ranks, which agree on it between steps."""
    return divmod(_lib.tf_smddp_next_ticket(), 1 << _TICKET_NUMBER_BITS)


@placed
def step_mark(communicator: int) -> tf.Tensor:
    """Stands in for a ticket where ops pair by name: an int64 scalar, -1."""
    # It runs at the beginning of the step, whatever its op waits for.
    with tf.control_dependencies(None):
        return ops.smddp_step_mark(communicator=communicator, name="SmddpStepMark")


@functools.lru_cache(maxsize=1024)
def _label_tensor(names: Tuple[str, ...]) -> tf.Tensor:
    """The labels as an eager tensor. To make one costs as much as to run an op, so the last ones are kept."""
    return tf.constant(names)


# A label that begins with this is a name that the user gave. Tensors with other names do not meet, whatever
# their shapes. Other labels are for messages only (ops/smddp_ops.cc).
NAMED = "\n\n"


def gradient(place: int, variable: int) -> str:
    """The beginning of a gradient's label, which meets no gradient of another place or variable.

    Args:
        place: its index among the gradients of the step; those that are None count.
        variable: the number of its variable, which is the same on all ranks; 0 if none is known.
    """
    return f"\n{place + 1} {variable}\n"


def is_of_gradient(label: bytes) -> bool:
    """Whether a label of an op in a graph begins with what `gradient` returns."""
    return re.match(rb"\n\d+ \d+\n", label) is not None


def labels(names: Sequence[str]) -> Dict[str, Any]:
    """The arguments for an op's labels: an input in eager mode, else an attribute.

    In eager mode TensorFlow keeps a kernel for each combination of attributes, for ever. In a graph, XLA
    takes no strings as inputs.
    """
    if tf.executing_eagerly():
        return {"labels": [_label_tensor(tuple(names))] if any(names) else []}
    return {"labels": [], "tensor_names": list(names)}


def one_label(name: str) -> Dict[str, Any]:
    """Does what labels() does, for an op of one tensor."""
    if tf.executing_eagerly():
        return {"labels": [_label_tensor((name,))] if name else []}
    return {"labels": [], "tensor_name": name}


def marked(pair_by_name: bool, communicator: int) -> ContextManager[None]:
    """A scope for an op without a ticket: one that pairs by name runs behind a step mark of its own."""
    return tf.control_dependencies([step_mark(communicator)] if pair_by_name else [])

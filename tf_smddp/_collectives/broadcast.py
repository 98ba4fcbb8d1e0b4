"""broadcast: gives every rank the root's values."""

from __future__ import annotations

import operator
from collections.abc import Iterable
from typing import Any, List, Optional

import tensorflow as tf

from smddp import WORLD, ReduceOp, runtime
from smddp.process_sets import ProcessSet, communicator_of, ranks_of
from tf_smddp._base.arguments import check_dtype, is_part, source_label, to_tensor, unwrapped
from tf_smddp._collectives import op_gradients
from tf_smddp._collectives.allreduce import reduce_gradient
from tf_smddp._graphs import op_parts, tickets
from tf_smddp._graphs.call_site import check_call_site
from tf_smddp._guards import gradient_use


def broadcast(
    tensor: Any, root_rank: int, name: Optional[str] = None, process_set: Optional[ProcessSet] = None
) -> tf.Tensor:
    """Returns the root's tensor, on every rank.

    Collective: every rank must call this, in the same order as its other collectives. It waits for all ranks.
    It can be differentiated: the root gets the sum of all ranks' gradients, the others get zeros.

    Args:
        tensor: the value on the root; on the others something of the same shape and type. Types are as in
            `allreduce`.
        root_rank: the rank whose values all get: a rank of the job, also with a process set.
        name: as in `allreduce`.
        process_set: as in `allreduce`.

    Returns:
        A tensor of the same shape and type.

    Raises:
        TypeError: `root_rank` is not an integer.
        ValueError: there is no such `root_rank`.
    """
    check_call_site("broadcast")
    communicator = communicator_of(process_set, "broadcast")
    root_rank = check_root(root_rank, process_set, "broadcast")
    value = to_tensor(tensor, "broadcast")
    check_dtype(value, "broadcast")
    tensor_name, node_name = tickets.names(name, "SmddpBroadcast")
    return broadcast_op(value, root_rank, tensor_name, tickets.pairs_by_name(), node_name, communicator)


def broadcast_variables(
    variables: Iterable[Any], root_rank: int, process_set: Optional[ProcessSet] = None
) -> Optional[tf.Operation]:
    """Gives the variables the root's values, on every rank.

    Collective: every rank must call this, with the same number of variables in the same order. Call it once
    the variables exist: for an optimizer that makes its variables in the first step, after that step.

    Args:
        variables: tf.Variable, Keras 2 or Keras 3 variables; may be empty. Eager, or traced in a
            `tf.function`.
        root_rank: the rank whose values all get: a rank of the job, also with a process set.
        process_set: as in `allreduce`.

    Returns:
        In a v1 graph the operation that assigns all variables, to be run in a session. Else None: eager mode
        has assigned them then, and a `tf.function` does it at this place.

    Raises:
        TypeError: something is not a variable, or `root_rank` is not an integer.
        ValueError: there is no such `root_rank`.
    """
    return broadcast_with_name(variables, root_rank, process_set, None)


def broadcast_with_name(
    variables: Iterable[Any], root_rank: int, process_set: Optional[ProcessSet], name: Optional[str]
) -> Optional[tf.Operation]:
    """Does what broadcast_variables does; variable number i is called "name/i" if there is a name."""
    check_call_site("broadcast_variables")
    communicator = communicator_of(process_set, "broadcast_variables")
    root_rank = check_root(root_rank, process_set, "broadcast_variables")
    if not isinstance(variables, Iterable):
        held = " Pass its variables: model.variables." if hasattr(type(variables), "variables") else ""
        raise TypeError(f"broadcast_variables() takes a list of variables, but got {variables!r}.{held}")
    variables = [variable for variable in variables if not is_part(variable)]
    found = [_tf_variable(variable) for variable in variables]
    assigned = []
    by_name = tickets.pairs_by_name()
    for i, variable in enumerate(found):
        value = tf.convert_to_tensor(variable)
        check_dtype(value, "broadcast")
        user_name = f"{name}/{i}" if name else None
        if by_name and not name:
            # The variable's own name is a better thing to meet by than a node's.
            user_name = f"SmddpBroadcast/{variable.name}"
        label, node_name = tickets.names(user_name, "SmddpBroadcast")
        label = label or source_label(variables[i])
        value = broadcast_op(value, root_rank, label, by_name, node_name, communicator, i, len(found))
        assigned.append(variable.assign(value))
    gradient_use.note_broadcast(found if communicator == WORLD else [])
    return tf.group(*assigned) if by_name else None


def _tf_variable(variable: Any) -> tf.Variable:
    """Returns the tf.Variable itself: Keras 3 wraps it, and in an autocast scope its wrapper casts."""
    found = unwrapped(variable)
    if isinstance(found, tf.Variable):
        check_dtype(found, "broadcast_variables", f"the variable {found.name!r}")
        return found
    raise TypeError(f"broadcast_variables() takes variables, but got {variable!r}.")


def check_root(root_rank: Any, process_set: Optional[ProcessSet], caller: str) -> int:
    """Returns the root as an int; raises a TypeError or ValueError that names it unless it is one."""
    try:
        root = operator.index(root_rank)
    except TypeError:
        raise TypeError(f"{caller}() needs root_rank as a Python integer, but got {root_rank!r}.") from None
    if not 0 <= root < runtime.size():
        raise ValueError(
            f"{caller}() needs 0 <= root_rank < size() = {runtime.size()}, but got root_rank={root}."
        )
    if root not in ranks_of(process_set):
        raise ValueError(
            f"{caller}() needs a root_rank that is in the process set {ranks_of(process_set)}, but got "
            f"root_rank={root}. It is a rank of the job, not an index in the set."
        )
    return root


@op_parts.placed
def broadcast_op(
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
    with op_parts.marked(pair_by_name, communicator):
        return op_parts.ops.smddp_broadcast(
            tensor=tensor,
            root_rank=root_rank,
            param_index=param_index,
            num_params=num_params,
            **op_parts.one_label(tensor_name),
            pair_by_name=pair_by_name,
            communicator=communicator,
            eager=tf.executing_eagerly(),
            name=name,
        )


@tf.RegisterGradient("SmddpBroadcast")
def _broadcast_gradient(op: tf.Operation, grad: Any) -> List[Optional[tf.Tensor]]:
    reduced = reduce_gradient(op, grad, ReduceOp.SUM, "SmddpBroadcastGrad")
    if runtime.rank() != op.get_attr("root_rank"):
        # The zeros must still depend on the reduction, else it is pruned here and the root waits for it;
        # likewise for their gradient, in a second derivative.
        reduced = tf.math.multiply_no_nan(reduced, tf.zeros([], reduced.dtype))
    return op_gradients.at_inputs([0], [reduced], len(op.inputs))

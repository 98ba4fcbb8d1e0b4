"""Tickets and names, by which a tensor meets its partners on the other ranks.

Each execution of a group (the gradients of one step, or one lone allreduce) draws one ticket; the k-th ticket
on one rank belongs to the k-th on every other. So tickets must be drawn in program order, in every mode that
has one:

* Eager: by each op, when it runs. Only one runs at a time, so it is a group of its own.
* In a tf.function: by a ticket op in the graph. It is stateful, so automatic control dependencies, with what
  program_order.py adds, keep program order between it and its like, through nested functions, branches and
  loops. In a tf.while_loop they also hold between iterations, whatever parallel_iterations says: the loop's
  lowering starts the next iteration only after the stateful ops of the body have run. (Measured with ticket
  ops of random duration; tests/python/spmd/test_order.py.) The allreduces themselves are outside that order
  and stay concurrent.
* In the backward graph of a function that is differentiated from outside, which TensorFlow builds without
  automatic control dependencies: each ticket op waits for the one before it in that graph, and for the
  gradient it is about, so that the order of the data holds across the functions and loops that it calls.
* In a v1 graph there is no program order. The ticket is -1 and tensors meet by name and its ordinal. It comes
  from an op of the step's, one for each collective, by which the step is known from its beginning on.

Each communicator counts for itself.
"""

from __future__ import annotations

import re
import threading
from typing import Any, List, Optional, Sequence, Set, Tuple

import tensorflow as tf

from smddp import ReduceOp
from tf_smddp._base import tensorflow_private
from tf_smddp._graphs import function_graphs, op_parts

_GRAPH_STATE = "_tf_smddp_ticket_state"


class _Group:
    """A group that users build with one allreduce() per tensor, as far as it has come."""

    def __init__(self, ticket: tf.Tensor, kind: Tuple[Any, ...]):
        self.ticket = ticket
        self.kind = kind
        self.seen: Set[int] = set()

    def takes(self, param_index: int, kind: Tuple[Any, ...]) -> bool:
        return kind == self.kind and param_index not in self.seen


class _State:
    """The open group and the last ticket of one graph, or of one thread of eager execution."""

    def __init__(self) -> None:
        self.group: Optional[_Group] = None
        self.last_ticket: Optional[tf.Tensor] = None
        # The ops of a v1 graph that take data, among the first so many.
        self.data: List[tf.Operation] = []
        self.num_seen = 0


class _EagerState(threading.local, _State):
    def __init__(self) -> None:
        _State.__init__(self)


_eager_state = _EagerState()


def pairs_by_name() -> bool:
    """Whether we are in a v1 graph (or a function inside one), where tensors meet by name."""
    return not tf.compat.v1.executing_eagerly_outside_functions()


def group_ticket(param_index: int, num_params: int, reduce_op: ReduceOp, communicator: int) -> tf.Tensor:
    """The ticket for one tensor of a group that is built tensor by tensor.

    The open group goes on while its tensors differ in `param_index` and agree in the rest; anything else
    starts the next one. Every graph (a branch, a loop body, a nested function) has its own, and so has every
    thread in eager mode.
    """
    if pairs_by_name():
        return draw_ticket(communicator)
    state = _current_state()
    group = state.group
    kind = (num_params, reduce_op, communicator)
    if group is None or not group.takes(param_index, kind):
        group = state.group = _Group(draw_ticket(communicator), kind)
    group.seen.add(param_index)
    return group.ticket


def draw_ticket(communicator: int = 0, after: Sequence[tf.Tensor] = ()) -> tf.Tensor:
    """A ticket for a group of its own: an int64 scalar. In a v1 graph, for one tensor of it.

    Args:
        communicator: the group's communicator.
        after: in a graph, tensors to wait for: what the group is about, in a backward graph.
    """
    if pairs_by_name():
        return op_parts.step_mark(communicator)
    if tf.executing_eagerly():
        return op_parts.eager_ticket()
    graph = tf.compat.v1.get_default_graph()
    state = _current_state()
    first: List[tf.Operation] = []
    # Else program_order.py adds what the ticket waits for: Note [What is before a draw].
    if not tensorflow_private.has_program_order(graph):
        ops = graph.get_operations()
        state.data += filter(function_graphs.takes_data, ops[state.num_seen :])
        state.num_seen = len(ops)
        first += state.data
        if state.last_ticket is not None:
            first.append(state.last_ticket.op)
    with tf.control_dependencies([*first, *after]):
        state.last_ticket = op_parts.ticket(communicator)
    return state.last_ticket


def names(user_name: Optional[str], default: str) -> Tuple[str, str]:
    """Returns (label, node name) for a collective.

    The label has the user's name, which the ranks compare; without one it is empty, or, in a v1 graph, where
    it is what tensors meet by, the name that the node will get. The node name is the user's with what
    TensorFlow does not allow in one replaced.
    """
    node_name = re.sub(r"[^A-Za-z0-9_./>-]", "_", user_name or default)
    if not re.match(r"[A-Za-z0-9.]", node_name):
        node_name = "_".join((default, node_name))
    if user_name or not pairs_by_name():
        return op_parts.NAMED + user_name if user_name else "", node_name
    return tf.compat.v1.get_default_graph().unique_name(node_name, mark_as_used=False), node_name


def _current_state() -> _State:
    if tf.executing_eagerly():
        return _eager_state
    graph = tf.compat.v1.get_default_graph()
    # The state holds tensors of the graph, so it lives in the graph and goes with it: a table on our side,
    # even one with weak keys, would keep every graph alive through its values.
    state = getattr(graph, _GRAPH_STATE, None)
    if state is None:
        state = _State()
        setattr(graph, _GRAPH_STATE, state)
    return state

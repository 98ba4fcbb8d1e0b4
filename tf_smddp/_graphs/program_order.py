"""Program order for our ops across calls, branches and loops, where TensorFlow keeps none.

In a tf.function, automatic control dependencies run stateful ops in program order. But a call of a nested
function (or a branch, or a loop) that takes variables is only ordered against calls that take the same ones.
Two of them, each with a collective and variables of its own, may run in either order, and in another one on
each rank: two models with identical shapes would exchange their gradients.

So we add the missing edges when TensorFlow ends a graph (tests/python/spmd/test_order.py). An op *draws* if
it draws a ticket or a number of a sequence, itself or in a function that it calls.

* Each op that draws waits for the one before it.
* Note [What is before a draw]. It also waits for the stateful ops since the one before it. Some of them can
  end the step (the next element of the data, an assertion, a call with one of them): then the step must have
  drawn on all ranks, or on none. Others read variables, and TensorFlow may lose the order "read, then
  assign" (docs/lost-order.md). All collectives of the group need the ticket, so what is assigned behind them
  is behind those reads, by a path that no optimizer can take away. Ops that only write are left out. They
  have no result, through which the order could be lost, and may wait for collectives.
  (tests/python/spmd/test_lost_order.py)
* An op that can end the step waits for the op that draws before it. The next element of the data also waits
  for the results of the collectives before it. They would be lost if the step ended while they are under way.
* In a function that draws, what writes waits for the data before it. Otherwise a step without data may still
  count itself (an optimizer's `iterations`), on some ranks. (tests/python/spmd/test_end_of_data.py)

A function that XLA compiles as a whole needs another order: compiled_order.py.
"""

from __future__ import annotations

from typing import List, Optional, Tuple

import tensorflow as tf

from tf_smddp._base import tensorflow_private
from tf_smddp._graphs import compiled_order, function_graphs

_STATE = "_tf_smddp_program_order"


class _Order:
    """How far one graph has been looked at."""

    def __init__(self) -> None:
        self.seen: Optional[tf.Operation] = None
        self.last: Optional[tf.Operation] = None  # the last op that draws
        self.since: List[tf.Operation] = []  # what the next op that draws waits for, beside `last`
        self.collectives: List[tf.Operation] = []  # what the next element of the data waits for
        self.data: List[tf.Operation] = []  # what writes wait for
        self.writes: List[
            Tuple[tf.Operation, List[tf.Operation]]
        ] = []  # with their `data`, if nothing draws yet


def _order(op: tf.Operation) -> None:
    """Has an op of a function wait for what must run before it."""
    order = getattr(op.graph, _STATE, None)
    if order is None:
        order = _Order()
        setattr(op.graph, _STATE, order)
    # More than once for the same op, when another hook has changed its resources.
    if order.seen is op:
        return
    order.seen = op
    takes_ticket, draws = op.type in function_graphs.TAKES_TICKET, function_graphs.draws(op)
    if not (takes_ticket or draws or tensorflow_private.is_stateful(op)):
        return
    scope = tensorflow_private.control_flow_scope(op)
    # Ops in v1 control flow must not wait for what is outside of it; there is none of ours in it.
    if scope is not None and not scope.IsXLAContext():
        return
    if compiled_order.is_compiled(op.graph):
        if takes_ticket or draws:
            order.last = compiled_order.follow(op, order.last)
    # Else one in XLA's scope calls a compiled function, or is in a part of the graph that is compiled.
    elif scope is None or function_graphs.calls_compiled(op):
        _wait(op, order, draws, takes_ticket)


def _wait(op: tf.Operation, order: _Order, draws: bool, takes_ticket: bool) -> None:
    takes_data = function_graphs.takes_data(op)
    first: List[tf.Operation] = []
    if takes_data:
        first += [_results_of(each) for each in order.collectives]
        order.collectives = []
    if order.last is not None and (draws or takes_data or function_graphs.asserts(op)):
        first.append(order.last)
    if draws:
        first += order.since
        order.last, order.since = _end_of(op), []
        for write, data in order.writes:
            _add_control_inputs(write, data)
        order.writes = []
    elif not takes_ticket:
        if order.data and not takes_data and function_graphs.may_write(op):
            if order.last is None:
                order.writes.append((op, order.data))
            else:
                first += order.data
        if op.outputs or not function_graphs.may_write(op) or any(function_graphs.functions_of(op)):
            order.since.append(op)
    _add_control_inputs(op, first)
    if takes_data:
        order.data = [*order.data, op]
    elif draws and order.data:
        order.data = [op]  # which waits for them
    if draws or takes_ticket:
        order.collectives.append(op)
        if order.data:
            # So that the next iteration of a loop waits for it.
            compiled_order.add_control_output(op.graph, _results_of(op))


def _add_control_inputs(op: tf.Operation, first: List[tf.Operation]) -> None:
    for each in first:
        tensorflow_private.add_control_input(op, each)


def _end_of(op: tf.Operation) -> tf.Operation:
    """The op that runs when all that the op draws has been drawn: itself, or one that waits for its results.

    A call has ended when its function's control outputs have run. The backward graphs that TensorFlow builds
    for persistent tapes have none.
    """
    for graph in function_graphs.drawing_functions_of(op):
        ends = tensorflow_private.control_outputs(graph)
        if ends is not None and not any(function_graphs.draws(end) for end in ends):
            return _results_of(op)
    return op


def _results_of(op: tf.Operation) -> tf.Operation:
    """The op, or one that has the results of a call. A call has ended when its stateful ops have run."""
    if not (op.outputs and any(function_graphs.functions_of(op))):
        return op
    with op.graph.as_default(), tf.control_dependencies([op]):
        return tf.identity_n(op.outputs)[0].op


tensorflow_private.for_each_op_of_functions(_order)

"""Program order for our ops across calls, branches and loops, where TensorFlow keeps none.

In a tf.function, automatic control dependencies run stateful ops in program order. But a call of a nested
function (or a branch, or a loop) that takes variables is only ordered against calls that take the same ones.
Two of them, each with a collective and variables of its own, may run in either order, and in another one on
each rank: two models with identical shapes would exchange their gradients.

So we add the missing edges. When TensorFlow ends a graph, each op that draws a ticket or a number of a
sequence, itself or in a function that it calls, is made to wait for the one before it.
(tests/python/spmd/test_order.py)

A function that XLA compiles as a whole needs more: _compiled_order.py.
"""

from __future__ import annotations

from typing import Optional

import tensorflow as tf

from tf_smddp import _compiled_order, _compiled_threads, _functions, _tensorflow_private

_LAST = "_tf_smddp_last_in_order"


def _order(op: tf.Operation) -> None:
    """Has an op of a function that draws wait for the one before it."""
    before, last = getattr(op.graph, _LAST, (None, None))
    # More than once for the same op, when another hook has changed its resources.
    if before is not op:
        then = _wait(op, last)
        if then is not None:
            setattr(op.graph, _LAST, (op, then))


def _wait(op: tf.Operation, last: Optional[tf.Operation]) -> Optional[tf.Operation]:
    """Has the op wait for the last one that draws, if it draws itself.

    Returns:
        The op for which the next one is to wait; None if the op has no place in that order.
    """
    takes_ticket = op.type in _functions.TAKES_TICKET
    if not (takes_ticket or _functions.draws(op)):
        return None
    scope = _tensorflow_private.control_flow_scope(op)
    # Ops in v1 control flow must not wait for what is outside of it; there is none of ours in it.
    if scope is not None and not scope.IsXLAContext():
        return None
    if _compiled_order.is_compiled(op.graph):
        return _compiled_order.follow(op, last)
    # Else one in XLA's scope calls a compiled function, or is in a part of the graph that is compiled.
    if takes_ticket or not (scope is None or _functions.calls_compiled(op)):
        return None
    if _functions.calls_compiled(op):
        _compiled_threads.count_graph_steps()
    if last is not None:
        _tensorflow_private.add_control_input(op, last)
    return op


_tensorflow_private.for_each_op_of_functions(_order)

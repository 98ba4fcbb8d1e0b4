"""Program order for our ops across calls, branches and loops, where TensorFlow keeps none.

In a tf.function, automatic control dependencies run stateful ops in program order; but a call of a nested
function (a branch, a loop) that takes variables is only ordered against others that take the same ones. Two
of them, each with a collective and variables of its own, may then run in either order, and in another one on
each rank: two models with identical shapes would exchange their gradients.

So we add what is missing: when TensorFlow ends a graph, each op that draws a place in an order of ours,
itself or in a function that it calls, waits for the one before it. TensorFlow asks for the resources of each
op then, in the order in which they were made; that hook is how we see them all.
(tests/python/spmd/test_order.py)

In a function that XLA compiles as a whole there is more to it: _compiled_order.py.
"""

from __future__ import annotations

from typing import Any, Optional

import tensorflow as tf
from tensorflow.python.framework import auto_control_deps

from tf_smddp import _compiled_order, _functions

_LAST = "_tf_smddp_last_in_order"


def _resolver(op: tf.Operation, reads: Any, writes: Any) -> bool:
    """Called for each op of a graph that gets automatic control dependencies; changes no resources."""
    del reads, writes
    before, last = getattr(op.graph, _LAST, (None, None))
    # More than once for the same op, when another hook has changed its resources.
    if before is not op:
        then = _wait(op, last)
        if then is not None:
            setattr(op.graph, _LAST, (op, then))
    return False


def _wait(op: tf.Operation, last: Optional[tf.Operation]) -> Optional[tf.Operation]:
    """Has the op wait for the last one in an order of ours, if it stands there.

    Returns:
        The op for which the next one is to wait; None if the op has no place in that order.
    """
    takes_ticket = op.type in _functions.TAKES_TICKET
    if not (takes_ticket or _functions.draws(op)):
        return None
    scope = op._control_flow_context
    # Ops in v1 control flow must not wait for what is outside of it; there is none of ours in it.
    if scope is not None and not scope.IsXLAContext():
        return None
    if _compiled_order.is_compiled(op.graph):
        return _compiled_order.follow(op, last)
    # Else one in XLA's scope calls a compiled function, or is in a part of the graph that is compiled.
    if takes_ticket or not (scope is None or _functions.calls_compiled(op)):
        return None
    if last is not None:
        op._add_control_input(last)
    return op


auto_control_deps.register_acd_resource_resolver(_resolver)

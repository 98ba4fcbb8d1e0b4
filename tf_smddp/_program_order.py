"""Program order for our ops across calls, branches and loops, where TensorFlow keeps none.

In a tf.function, automatic control dependencies run stateful ops in program order; but a call of a nested
function (a branch, a loop) that takes variables is only ordered against others that take the same ones. Two
of them, each with a collective and variables of its own, may then run in either order, and in another one on
each rank: two models with identical shapes would exchange their gradients.

So we add what is missing: when TensorFlow ends a graph, each op that draws a place in an order of ours,
itself or in a function that it calls, waits for the one before it. TensorFlow asks for the resources of each
op then, in the order in which they were made; that hook is how we see them all.
(tests/python/spmd/test_order.py)
"""

from __future__ import annotations

from typing import Any, FrozenSet, Iterator

import tensorflow as tf
from tensorflow.python.framework import auto_control_deps

# The ops that draw a ticket or a number of a sequence when they run.
_DRAWS: FrozenSet[str] = frozenset(
    ("SmddpTicket", "SmddpBroadcast", "SmddpBarrier", "SmddpOobAllreduce"),
)
_LAST = "_tf_smddp_last_in_order"
_KNOWN = "_tf_smddp_draws"


def _resolver(op: tf.Operation, reads: Any, writes: Any) -> bool:
    """Called for each op of a graph that gets automatic control dependencies; changes no resources."""
    del reads, writes
    # Ops in v1 control flow must not wait for what is outside of it; there is none of ours in it.
    if op._control_flow_context is None and _draws(op):
        last = getattr(op.graph, _LAST, None)
        # More than once for the same op, when another hook has changed its resources.
        if last is not op:
            if last is not None:
                op._add_control_input(last)
            setattr(op.graph, _LAST, op)
    return False


auto_control_deps.register_acd_resource_resolver(_resolver)


def _draws(op: tf.Operation) -> bool:
    """Whether the op draws, or a function that it runs."""
    if op.type in _DRAWS:
        return True
    if any(_graph_draws(graph) for graph in _functions_of(op)):
        return True
    # A loop over a dataset is one op that runs the functions of the datasets before it.
    return any(
        tensor.dtype == tf.variant and _draws(tensor.op) for tensor in op.inputs if _is_dataset(tensor)
    )


def _is_dataset(tensor: tf.Tensor) -> bool:
    return tensor.op.type.endswith(("Dataset", "DatasetV2", "DatasetV3"))


def _graph_draws(graph: Any) -> bool:
    known = getattr(graph, _KNOWN, None)
    if known is None:
        # A function that calls itself is asked about while it is being looked at: its other ops decide.
        setattr(graph, _KNOWN, False)
        known = any(_draws(op) for op in graph.get_operations())
        setattr(graph, _KNOWN, known)
    return known


def _functions_of(op: tf.Operation) -> Iterator[Any]:
    """The graphs of the functions that are attributes of the op, as far as TensorFlow keeps them."""
    for attribute in op.op_def.attr:
        if attribute.type == "func":
            names = [op.get_attr(attribute.name).name]
        elif attribute.type == "list(func)":
            names = [function.name for function in op.get_attr(attribute.name)]
        else:
            continue
        for name in names:
            function = op.graph._get_function(name)
            graph = getattr(function, "graph", None)
            if graph is not None:
                yield graph

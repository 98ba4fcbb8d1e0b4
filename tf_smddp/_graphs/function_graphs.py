"""Looks for the package's ops in a function, and in the functions that it calls.

Place in the stack: beside op_parts.py. The two orders (program_order.py, compiled_order.py) and the
check of call sites (call_site.py) ask here.
"""

from __future__ import annotations

from typing import Any, Callable, FrozenSet, Iterator, Optional, Set

import tensorflow as tf

from tf_smddp._base import op_library, tensorflow_private

_DEFINITIONS = op_library.op_definitions()

# All ops that communicate.
COLLECTIVES: FrozenSet[str] = frozenset(
    name for name, definition in _DEFINITIONS.items() if definition.is_distributed_communication
)
# The ops that take a ticket. In a program of XLA's the first one of a group draws it, too.
TAKES_TICKET: FrozenSet[str] = frozenset(
    name for name in COLLECTIVES if any(arg.name == "ticket" for arg in _DEFINITIONS[name].input_arg)
)
# The ops that draw a ticket or a number of a sequence when they run.
DRAWS: FrozenSet[str] = (COLLECTIVES - TAKES_TICKET) | {"SmddpTicket"}
# The ops that fail where a user's check does, or a user's Python. The end of the data fails another op.
_ASSERTS = frozenset(("Assert", "CheckNumerics", "CheckNumericsV2", "PyFunc", "EagerPyFunc"))
_READS = frozenset(("ReadVariableOp", "ResourceGather", "ResourceGatherNd"))
_KNOWN = "_tf_smddp_%s"


def draws(op: tf.Operation) -> bool:
    """Whether the op draws, or a function that it runs does. Every collective needs something that draws."""
    return op.type in DRAWS or calls_what_draws(op)


def calls_what_draws(op: tf.Operation) -> bool:
    """Whether a function that the op runs draws."""
    if _calls(op, draws):
        return True
    # A loop over a dataset is one op that runs the functions of the datasets before it.
    return any(tensor.dtype == tf.variant and draws(tensor.op) for tensor in op.inputs if _is_dataset(tensor))


def takes_data(op: tf.Operation) -> bool:
    """Whether the op takes the next element of an iterator, or a function that it runs does."""
    return "IteratorGetNext" in op.type or _calls(op, takes_data)


def asserts(op: tf.Operation) -> bool:
    """Whether the op checks something for the user, or a function that it runs does."""
    return op.type in _ASSERTS or _calls(op, asserts)


def may_write(op: tf.Operation) -> bool:
    """Whether the op, which is stateful, may change a variable or another resource."""
    return op.type not in _READS and any(tensor.dtype == tf.resource for tensor in op.inputs)


def drawing_functions(graph: Any) -> Iterator[Any]:
    """The graphs of the functions that the graph's ops run and that draw."""
    for op in graph.get_operations():
        yield from drawing_functions_of(op)


def drawing_functions_of(op: tf.Operation) -> Iterator[Any]:
    """The graphs of the functions that the op runs and that draw."""
    return (graph for graph in functions_of(op) if _graph_has(graph, draws))


def ops_run_by(op: tf.Operation) -> Iterator[tf.Operation]:
    """The op, and all ops of the functions that it runs, and that those run."""
    yield op
    seen: Set[int] = set()
    for graph in functions_of(op):
        yield from ops_of(graph, seen)


def ops_of(graph: Any, seen: Optional[Set[int]] = None) -> Iterator[tf.Operation]:
    """All ops of the graph and of the functions that it runs; nothing of the graphs in `seen`, by id."""
    seen = set() if seen is None else seen
    if id(graph) in seen:
        return
    seen.add(id(graph))
    for op in graph.get_operations():
        yield op
        for inner in functions_of(op):
            yield from ops_of(inner, seen)


def calls_compiled(op: tf.Operation) -> bool:
    """Whether the op calls a function with jit_compile=True."""
    try:
        return bool(op.get_attr("_XlaMustCompile"))
    except ValueError:
        return False


def _is_dataset(tensor: tf.Tensor) -> bool:
    return tensor.op.type.endswith(("Dataset", "DatasetV2", "DatasetV3"))


def _calls(op: tf.Operation, test: Callable[[tf.Operation], bool]) -> bool:
    return any(_graph_has(graph, test) for graph in functions_of(op))


def _graph_has(graph: Any, test: Callable[[tf.Operation], bool]) -> bool:
    attribute = _KNOWN % test.__name__
    known = getattr(graph, attribute, None)
    if known is None:
        # A function that calls itself is asked about while it is being looked at: its other ops decide.
        setattr(graph, attribute, False)
        known = any(test(op) for op in graph.get_operations())
        setattr(graph, attribute, known)
    return known


def functions_of(op: tf.Operation) -> Iterator[Any]:
    """The graphs of the functions that are attributes of the op, as far as TensorFlow keeps them."""
    for attribute in op.op_def.attr:
        if attribute.type == "func":
            names = [op.get_attr(attribute.name).name]
        elif attribute.type == "list(func)":
            names = [function.name for function in op.get_attr(attribute.name)]
        else:
            continue
        for name in names:
            graph = tensorflow_private.function_graph(op.graph, name)
            if graph is not None:
                yield graph

"""Keeps the collectives of a function that XLA compiles as a whole in program order, on all ranks.

Place in the stack: below op_parts.py, which makes every op through emit(). Not here: the chain in which
XLA's programs hold the calls, and why there is one (Note [The chain], kernels/tf/xla/call_emitter.h).

A call in a compiled program blocks until all ranks have made it, so all ranks must make their calls in the
same order. The chain has the order in which TensorFlow compiles the ops of a graph, which only the graph's
edges determine. TensorFlow's own control edges leave out some of our ops, and calls of functions with such
ops. So:

* Each op waits for the one that was made before it in the same graph. So does each call of a function, branch
  or loop that has such ops, and the next op waits for that call.
* A branch or a loop is a computation of its own. Its graph takes the chain, a resource (SmddpChain), from the
  graph around it, and that one from the graph around itself, up to the graph of the function. Through the
  resource TensorFlow passes the chain's last token in and out. A function that is called needs none of this:
  TensorFlow compiles its ops in place of the call.
* Control edges have no meaning to XLA. An op behind a loop whose condition communicates, and whose
  body does not, has no result of the loop as an operand. So another SmddpChain takes one (_after_condition).
* An op that waits for the call of a function waits for the function's control outputs only. So the last op of
  a function is a control output. Where the function was traced before, for other callers, the next op waits
  for its results instead; its branches and loops do not take the chain, and a warning says so.

A function that was first traced in a compiled function, and is called elsewhere as well, keeps these edges
there: its collectives run one after the other.
"""

from __future__ import annotations

import warnings
from typing import Any, Callable, List, Optional, Sequence

import tensorflow as tf

from tf_smddp._base import op_library, tensorflow_private
from tf_smddp._graphs import function_graphs

_ops = op_library.load()[0]

# Attributes that are set on a graph, and live as long as it.
_MARK = "_tf_smddp_compiled"  # XLA compiles this function, though TensorFlow's own mark may be gone
_LAST = "_tf_smddp_last_compiled"  # the op for which the next one is to wait
_ORDERED = "_tf_smddp_ordered_compiled"  # the graph's ops wait for each other, and callers for the last one
_FIRST = "_tf_smddp_first_compiled"  # the op for which the graph's first one is to wait
_SEEN = "_tf_smddp_seen_compiled"  # how many of the graph's ops have been looked at
_LACKS = "_tf_smddp_lacks_chain"  # the result of _lacks_chain
_TAKEN = "_tf_smddp_chain_taken"  # the chain is among the graph's inputs
_CHAIN = "_tf_smddp_chain"  # the chain that branches and loops in the graph take, and the ops it waits for


def is_compiled(graph: Any) -> bool:
    """Whether the graph, which is being built, is or is in a function that XLA compiles as a whole."""
    if tensorflow_private.in_xla_context(graph):
        return True
    while graph is not None:
        if getattr(graph, _MARK, False):
            return True
        graph = getattr(graph, "outer_graph", None)
    return False


def was_compiled(graph: Any) -> bool:
    """Whether the graph is that of a function with jit_compile=True, or of a branch or loop in one.

    Not that of a function which is called there, and maybe elsewhere, too.
    """
    return getattr(_function_of(graph), _MARK, False)


def mark(graph: Any) -> None:
    """Notes that XLA compiles the function to which the graph belongs.

    TensorFlow's own mark, the XLA context, does not last. While a function is traced, the graph that calls it
    is in such a context, or for get_concrete_function() the function's own graph. No graph is in one when
    TensorFlow makes the backward function of a function that is differentiated from outside.
    """
    setattr(_function_of(graph), _MARK, True)


def _function_of(graph: Any) -> Any:
    while isinstance(graph, tensorflow_private.CONTROL_FLOW_GRAPHS):
        graph = graph.outer_graph
    return graph


def _mark_compiled(graph: Any) -> None:
    """Marks the function with jit_compile=True in which the graph is being built."""
    inner = None
    while graph is not None:
        scope = tensorflow_private.compiled_function_scope(graph)
        if scope is not None:
            # A graph that has made ops in the scope is the compiled one itself. Otherwise it is about to
            # call the compiled function, whose graph is `inner`.
            own = inner is None or any(
                tensorflow_private.control_flow_scope(op) is scope for op in reversed(graph.get_operations())
            )
            return mark(graph if own else inner)
        if getattr(_function_of(graph), _MARK, False):
            return
        inner = graph
        graph = getattr(graph, "outer_graph", None)


def emit(graph: Any, make: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    """Makes an op in a graph that is compiled, which waits for the op that was made there before."""
    _mark_compiled(graph)
    setattr(graph, _ORDERED, True)
    _take_chain(graph)
    if not tensorflow_private.has_program_order(graph):
        _look_at_calls(graph)
    with tf.control_dependencies(_last(graph)):
        made = make(*args, **kwargs)
    first = tf.nest.flatten(made)[0]
    _set_last(graph, first if isinstance(first, tf.Operation) else first.op)
    return made


def follow(op: tf.Operation, last: Optional[tf.Operation]) -> tf.Operation:
    """Has an op that communicates, or calls what does, wait for `last`, in a graph that is compiled.

    For graphs with automatic control dependencies: called when the graph ends, for all such ops, in the order
    in which they were made.

    Returns:
        The op for which the next one is to wait.
    """
    graph = op.graph
    _mark_compiled(graph)
    setattr(graph, _ORDERED, True)
    _take_chain(graph)
    last = last or getattr(graph, _FIRST, None)
    if last is not None:
        tensorflow_private.add_control_input(op, last)
    return _end_of(op)


def _end_of(op: tf.Operation) -> tf.Operation:
    """The op that runs only after all collectives of `op`: itself, or one that waits for its results."""
    functions = list(function_graphs.functions_of(op))
    if not functions:
        return op
    if isinstance(functions[0], tensorflow_private.CONTROL_FLOW_GRAPHS):
        return _after_condition(op, functions)
    if any(_lacks_chain(function) for function in functions):
        warnings.warn(
            f"tf_smddp: {functions[0].name}() has collectives in branches or loops, and was traced outside "
            "of the function that XLA compiles and that calls it now. So they have no order beside "
            "collectives that they don't depend on, and ranks may wait for each other: give the compiled "
            "function a tf.function of its own",
            stacklevel=2,
        )
    if all(getattr(function, _ORDERED, False) for function in functions) or not op.outputs:
        return op
    with op.graph.as_default(), tf.control_dependencies([op]):
        end = tf.identity_n(op.outputs)[0].op
    add_control_output(op.graph, end)
    return end


def _after_condition(op: tf.Operation, functions: List[Any]) -> tf.Operation:
    """The op that runs after a branch or a loop; after a loop's condition, too, if that communicates."""
    conditions = [each for each in functions if isinstance(each, tensorflow_private.LOOP_CONDITION_GRAPH)]
    if not any(getattr(condition, _TAKEN, False) for condition in conditions):
        return op
    counter = op.outputs[0]  # of the iterations: it changes in every one
    return _make_chain(op.graph, [op], after=[counter]).op


def _lacks_chain(graph: Any) -> bool:
    """Whether the graph or what it calls has collectives in branches or loops without the chain."""
    known = getattr(graph, _LACKS, None)
    if known is None:
        setattr(graph, _LACKS, False)  # for a function that calls itself
        known = any(
            (isinstance(inner, tensorflow_private.CONTROL_FLOW_GRAPHS) and not getattr(inner, _TAKEN, False))
            or _lacks_chain(inner)
            for inner in function_graphs.drawing_functions(graph)
        )
        setattr(graph, _LACKS, known)
    return known


def _look_at_calls(graph: Any) -> None:
    """Orders the calls made since the last op, in a graph without automatic control dependencies."""
    ops = graph.get_operations()
    for op in ops[getattr(graph, _SEEN, 0) :]:
        if function_graphs.calls_what_draws(op):
            _set_last(graph, follow(op, getattr(graph, _LAST, None)))
    setattr(graph, _SEEN, len(ops))


def _take_chain(graph: Any) -> None:
    """Makes the chain an input of the graph, if it is that of a branch or a loop."""
    if not isinstance(graph, tensorflow_private.CONTROL_FLOW_GRAPHS) or getattr(graph, _TAKEN, False):
        return
    setattr(graph, _TAKEN, True)
    graph.capture(_chain_in(graph.outer_graph))
    if isinstance(graph, tensorflow_private.LOOP_CONDITION_GRAPH):
        first = _make_chain(graph, _last(graph), hand_back=False).op
        setattr(graph, _FIRST, first)
        setattr(graph, _LAST, first)


def _chain_in(graph: Any) -> tf.Tensor:
    """The chain, for the next branches or loop in the graph.

    All branches of one op must take the same tensor, and so must a loop's body and condition: to TensorFlow,
    two tensors would be two resources, each with a last token of its own. So it stays the same until an op
    takes it, or another op that communicates is made.
    """
    _take_chain(graph)
    last = _last(graph)
    chain, before = getattr(graph, _CHAIN, (None, None))
    if chain is None or chain.consumers() or before != last:
        chain = _make_chain(graph, last)
        setattr(graph, _CHAIN, (chain, last))
    return chain


def _make_chain(
    graph: Any, last: List[tf.Operation], hand_back: bool = True, after: Sequence[tf.Tensor] = ()
) -> tf.Tensor:
    with graph.as_default(), tf.device("CPU:0"), tf.control_dependencies(last):
        return _ops.smddp_chain(after, hand_back=hand_back, name="SmddpChain")


def _last(graph: Any) -> List[tf.Operation]:
    last = getattr(graph, _LAST, None)
    return [] if last is None else [last]


def _set_last(graph: Any, op: tf.Operation) -> None:
    before = getattr(graph, _LAST, None)
    setattr(graph, _LAST, op)
    outputs = tensorflow_private.control_outputs(graph)
    if outputs is not None:
        outputs[:] = [other for other in outputs if other is not before]
    add_control_output(graph, op)


def add_control_output(graph: Any, op: tf.Operation) -> None:
    """Has callers of the graph's function wait for an op of it."""
    # TensorFlow itself adds stateful ops, and accepts none twice.
    outputs = tensorflow_private.control_outputs(graph)
    if outputs is not None and not tensorflow_private.is_stateful(op):
        outputs.append(op)

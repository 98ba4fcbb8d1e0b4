"""The private parts of TensorFlow that the package uses, each behind a function that says why.

Place in the stack: at the bottom, beside op_library.py. No other module of the package imports from
`tensorflow.python` or names a private attribute of TensorFlow's. All of it is the same in TensorFlow 2.15 to
2.21. Not here: the private parts that C++ uses (kernels/tf), and those of Keras (_optimizers, keras).
"""

from __future__ import annotations

import functools
from typing import Any, Callable, ContextManager, Iterable, List, Optional

import tensorflow as tf
from tensorflow.python.autograph.core import config as autograph_config
from tensorflow.python.eager import context
from tensorflow.python.eager.polymorphic_function import atomic_function
from tensorflow.python.framework import auto_control_deps, func_graph, op_def_registry
from tensorflow.python.framework import config as framework_config
from tensorflow.python.ops import (
    control_flow_ops,
    control_flow_util,
    control_flow_v2_func_graphs,
    script_ops,
)
from tensorflow.python.saved_model import save_context

# The graphs of branches and loops. No public attribute tells them from other functions' graphs.
CONTROL_FLOW_GRAPHS = (
    control_flow_v2_func_graphs.CondBranchFuncGraph,
    control_flow_v2_func_graphs.WhileCondFuncGraph,
    control_flow_v2_func_graphs.WhileBodyFuncGraph,
)
LOOP_CONDITION_GRAPH = control_flow_v2_func_graphs.WhileCondFuncGraph

_NOT_CLUSTERED = {"_XlaCompile": tf.compat.v1.AttrValue(b=False)}
# Set on a Python function that has been wrapped, to the other one of the two, which lives as long.
_WRAPPED = "_tf_smddp_wrapped"


# Ops


def ops_are_deterministic() -> bool:
    """Whether `tf.config.experimental.enable_op_determinism` was called. There is no public getter."""
    return bool(framework_config.is_op_determinism_enabled())


def global_seed() -> Any:
    """What `tf.random.set_seed` was given; None if it was not called. The public getter draws a number."""
    return context.global_seed() if tf.executing_eagerly() else tf.compat.v1.get_default_graph().seed


def numbers_of_files(dataset: Any) -> List[int]:
    """How many elements those data sets have from which this one may take the names of its files.

    They are the last ones of strings whose number of elements is known, or else those at the beginning. There
    is no public way to the inputs of a data set.
    """
    numbers, seen, left = [], {}, [dataset]
    while left:
        each = left.pop()
        if id(each) in seen:
            continue
        seen[id(each)] = each
        names = getattr(each, "_filenames", None)  # of TextLineDataset, which has no inputs
        inputs = [names] if isinstance(names, tf.data.Dataset) else each._inputs()
        spec, number = each.element_spec, tf.get_static_value(each.cardinality())  # None in a graph
        is_text = isinstance(spec, tf.TensorSpec) and spec.dtype == tf.string and spec.shape.rank == 0
        if not inputs or (is_text and number is not None and number >= 0):
            numbers.append(-1 if number is None else int(number))
        else:
            left += inputs
    return numbers


def op_definition(name: str) -> Any:
    """The OpDef of a registered op. `tf.Operation.op_def` would do, but needs an op."""
    return op_def_registry.get(name)


def is_stateful(op: tf.Operation) -> bool:
    """Whether TensorFlow runs the op for its effect. `op_def.is_stateful` leaves out calls of functions."""
    return bool(auto_control_deps.op_is_stateful(op))


def add_control_input(op: tf.Operation, first: tf.Operation) -> None:
    """Has an op that exists run after another one. `tf.control_dependencies` is for ops that are made."""
    op._add_control_input(first)


def control_flow_scope(op: tf.Operation) -> Any:
    """The v1 control flow, or XLA's scope, in which the op was made; None for none. Not public."""
    return op._control_flow_context


def leave_unordered(ops: Iterable[str]) -> None:
    """Has automatic control dependencies leave the stateful ops of these types unordered.

    Publicly an op is either stateful and in order, or stateless, and then merged with its like.
    """
    auto_control_deps.ASYNC_STATEFUL_OPS |= frozenset(ops)


def for_each_op_of_functions(hook: Callable[[tf.Operation], None]) -> None:
    """Has `hook(op)` called for each op of a function's graph, in the order of making, when it is finished.

    Of graphs with automatic control dependencies; may be called twice in a row for an op. TensorFlow asks
    here which resources an op uses. There is no public hook at the end of a trace.
    """

    @functools.wraps(hook)  # they are registered by name
    def resolver(op: tf.Operation, reads: Any, writes: Any) -> bool:
        del reads, writes
        hook(op)
        return False

    auto_control_deps.register_acd_resource_resolver(resolver)


# Eager execution


def eager_device() -> Optional[str]:
    """The device scope in eager mode, "" for none; None in a graph.

    It is what TensorFlow's own functions of ops look at. `tf.executing_eagerly` costs twice as much, and what
    scope there is can only be found out by making a tensor in it.
    """
    thread = context.context()._thread_local_data
    return (thread.device_name or "") if thread.is_eager else None


def eager_mode() -> ContextManager[None]:
    """A scope of eager execution, also in a v1 script. `tf.init_scope` would leave a v1 graph as it is."""
    return context.eager_mode()


def before_each_function_call(check: Callable[[Any], None]) -> None:
    """Has `check(function)` called before each call of a `tf.function` from eager mode, from now on.

    The function has its graph as `function.graph`. Public hooks (`tf.debugging`'s) run after the call.
    """
    call_flat = atomic_function.AtomicFunction.call_flat

    @functools.wraps(call_flat)
    def checked(self: Any, *args: Any) -> Any:
        if tf.executing_eagerly():
            check(self)
        return call_flat(self, *args)

    atomic_function.AtomicFunction.call_flat = checked


def wrap_python_function(op: tf.Operation, wrap: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
    """Wraps the Python function that `op`, a `tf.py_function` or `tf.numpy_function`, runs; once.

    There is no public way from such an op to its function, nor one to tell what runs it.
    """
    token = tf.compat.as_str(op.get_attr("token"))
    function = script_ops._py_funcs.get(token)
    if function is None or hasattr(function, _WRAPPED):
        return
    if isinstance(function, script_ops.EagerFunc):
        setattr(function, _WRAPPED, function._func)
        function._func = wrap(function._func)
    else:
        wrapped = wrap(function)
        setattr(function, _WRAPPED, wrapped)
        setattr(wrapped, _WRAPPED, function)
        script_ops._py_funcs._funcs[token] = wrapped  # held weakly


# Graphs


def never_convert(*packages: str) -> None:
    """Has AutoGraph run the functions of these packages as they are.

    Ours decide in Python alone. To convert them would slow down each first trace, and would leave a file for
    each in the temporary directory when the process is killed. The public way,
    `tf.autograph.experimental.do_not_convert`, is a decorator for each function.
    """
    rules = tuple(map(autograph_config.DoNotConvert, packages))
    autograph_config.CONVERSION_RULES = (*rules, *autograph_config.CONVERSION_RULES)


def not_clustered(graph: Any) -> ContextManager[None]:
    """A scope whose ops auto-clustering leaves out.

    `tf.xla.experimental.jit_scope(compile_ops=False)` is refused within a function that XLA compiles. Such a
    function takes no notice of this.
    """
    return graph._attr_scope(_NOT_CLUSTERED)


def has_program_order(graph: Any) -> bool:
    """Whether the graph, which is being built, gets automatic control dependencies. Not public."""
    return bool(graph._add_control_dependencies)


def function_graph(graph: Any, name: str) -> Any:
    """The graph of a function that the graph's ops call, if TensorFlow keeps it; else None.

    `tf.Graph.as_graph_def` has the functions as protocol buffers, which are slow, and lack our marks.
    """
    return getattr(graph._get_function(name), "graph", None)


def in_xla_context(graph: Any) -> bool:
    """Whether the graph, or one around it, is in a scope that XLA compiles as a whole. Not public."""
    return bool(control_flow_util.GraphOrParentsInXlaContext(graph))


def compiled_function_scope(graph: Any) -> Any:
    """The scope of a function with jit_compile=True in which the graph's next ops will be; None for none.

    It is another one than that of `tf.xla.experimental.compile`. Not public.
    """
    scope = graph._get_control_flow_context()
    return scope if isinstance(scope, control_flow_ops.XLAControlFlowContext) else None


def control_outputs(graph: Any) -> Optional[List[tf.Operation]]:
    """The ops that callers of the graph's function wait for, to be changed in place; None if it is none."""
    return graph.control_outputs if isinstance(graph, func_graph.FuncGraph) else None


def is_exporting() -> bool:
    """Whether a model is being saved. Keras has a public way to say so, for its own layers only."""
    return bool(save_context.in_save_context())

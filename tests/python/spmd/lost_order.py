"""Finds ops that use the same variable, and that TensorFlow's optimized graph may run in either order.

A `tf.function` orders each read and each write of a variable (or iterator, or random generator) against the
writes around it. TensorFlow's graph optimizer may lose such an order (docs/lost-order.md). It then depends on
time which value a step reads. The result here does not: only the optimized graph is looked at.

    assert unordered_pairs(lambda: tf.function(step)()) == []
"""

import collections
import dataclasses
import itertools
from typing import Any, Callable, Dict, FrozenSet, Iterable, List, Set, Tuple

from tensorflow.core.framework import types_pb2
from tensorflow.python.eager import context
from tensorflow.python.framework import op_def_registry

from tf_smddp._graphs import function_graphs

# Ops that hand a resource on, or ask for what no write changes.
_HANDS_ON = ("Identity", "Switch", "Merge", "Enter", "Exit", "NextIteration", "LoopCond", "_Retval")
_ASKS = ("VariableShape", "VarIsInitializedOp", "SmddpChain")
_CALLS = (
    "PartitionedCall",
    "StatefulPartitionedCall",
    "If",
    "StatelessIf",
    "While",
    "StatelessWhile",
    "Case",
)


_TICKETS = "tickets"


@dataclasses.dataclass(frozen=True)
class _Use:
    node: str
    op: str
    writes: bool


def unordered_pairs(run: Callable[[], Any]) -> List[str]:
    """The pairs that are unordered in the graphs of the functions that `run()` calls for the first time.

    A pair is two uses of one resource, at least one of which writes. Reads of which no op uses the result are
    left out. An op that draws a ticket or a number of a sequence makes a pair with each other one, and with
    each op that can end the step, since it takes data or asserts.
    """
    context.context().enable_graph_collection()
    try:
        run()
        collected = context.context().export_run_metadata()
    finally:
        context.context().disable_graph_collection()
    assert collected.function_graphs, "run() called no function that had not been called before"
    return [pair for each in collected.function_graphs for pair in unordered_in(each.post_optimization_graph)]


def unordered_in(graph: Any) -> List[str]:
    """The pairs that unordered_pairs() finds, in one optimized GraphDef and in its functions."""
    library = {function.signature.name: function for function in graph.library.function}
    found = _Graph(graph.node, library).unordered()
    for name, function in library.items():
        found += [f"{name}: {pair}" for pair in _Graph(function.node_def, library).unordered()]
    return found


def _can_end_step(op: str) -> bool:
    return op in ("Assert", "CheckNumerics") or "IteratorGetNext" in op


def _node_of(tensor: str) -> str:
    return tensor.lstrip("^").split(":")[0]


class _Graph:
    def __init__(self, nodes: Iterable[Any], library: Dict[str, Any]):
        self._library = library
        self._nodes = {node.name: node for node in nodes}
        self._next: Dict[str, Set[str]] = collections.defaultdict(set)
        for node in self._nodes.values():
            for tensor in node.input:
                self._next[_node_of(tensor)].add(node.name)
        self._sides: Dict[str, FrozenSet[Tuple[str, int]]] = {}
        self._loops: Dict[str, Tuple[str, ...]] = {}
        self._known: Dict[Tuple[str, int], Set[str]] = {}

    def unordered(self) -> List[str]:
        found = []
        self._find_sides()
        self._find_loops()
        for resource, uses in sorted(self.uses().items()):
            if not any(use.writes for use in uses):
                continue
            for a, b in itertools.combinations(uses, 2):
                if (a.writes or b.writes) and not self._ordered(a.node, b.node):
                    found.append(f"{resource}: {a.op} {a.node} and {b.op} {b.node}")
        return found

    def _ordered(self, a: str, b: str) -> bool:
        """Whether one of the two runs after the other, in each iteration of the loops that both are in."""
        loops = zip(self._loops.get(a, ()), self._loops.get(b, ()))
        common = len(list(itertools.takewhile(lambda pair: pair[0] == pair[1], loops)))
        # In a loop the one that is later is before the other one of the next iteration.
        if common and not (b in self._reached(a, 0) and a in self._reached(b, 0)):
            return False
        return b in self._reached(a, common) or a in self._reached(b, common) or self._exclude(a, b)

    def uses(self) -> Dict[str, List[_Use]]:
        """The uses of each resource by the graph's ops, by the name of the node or argument that has it."""
        found = collections.defaultdict(list)
        for node in self._nodes.values():
            if node.op in function_graphs.DRAWS or _can_end_step(node.op):
                found[_TICKETS].append(_Use(node.name, node.op, node.op in function_graphs.DRAWS))
            if node.op in _HANDS_ON or node.op in _ASKS:
                continue
            for resource, writes in self._resources(node):
                if writes or self._next[node.name]:
                    found[resource].append(_Use(node.name, node.op, writes))
        return found

    def _resources(self, node: Any) -> Iterable[Tuple[str, bool]]:
        """The resources that a node uses, and whether it writes them."""
        data = [tensor for tensor in node.input if not tensor.startswith("^")]
        if node.op in _CALLS or node.op in self._library:
            yield from self._resources_of_call(node, data)
            return
        definition = op_def_registry.get(node.op)
        if definition is None:
            return
        for argument, tensor in zip(definition.input_arg, data):
            if argument.type == types_pb2.DT_RESOURCE and not argument.number_attr:
                yield self._root(tensor), not node.op.startswith(("ReadVariable", "ResourceGather"))

    def _resources_of_call(self, node: Any, data: List[str]) -> Iterable[Tuple[str, bool]]:
        names = [node.op] if node.op in self._library else []
        for value in node.attr.values():
            names += [value.func.name] if value.func.name else [each.name for each in value.list.func]
        skip = 0 if "PartitionedCall" in node.op or "While" in node.op or node.op in self._library else 1
        used: Dict[str, bool] = {}
        for name in names:
            function = self._library.get(name)
            if function is None:
                continue
            inner = _Graph(function.node_def, self._library).uses()
            if _TICKETS in inner:
                used[_TICKETS] = used.get(_TICKETS, False) or any(use.writes for use in inner[_TICKETS])
            for argument, tensor in zip(function.signature.input_arg, data[skip:]):
                if argument.type == types_pb2.DT_RESOURCE and argument.name in inner:
                    writes = any(use.writes for use in inner[argument.name])
                    root = self._root(tensor)
                    used[root] = used.get(root, False) or writes
        yield from used.items()

    def _root(self, tensor: str) -> str:
        node = self._nodes.get(_node_of(tensor))
        while node is not None and node.op in _HANDS_ON:
            tensor = node.input[0]
            node = self._nodes.get(_node_of(tensor))
        return _node_of(tensor)

    def _reached(self, start: str, loops: int) -> Set[str]:
        """The nodes that run after `start` has run, in the same iteration of the outermost `loops` loops."""
        if (start, loops) not in self._known:
            reached: Set[str] = set()
            pending = list(self._next[start])
            while pending:
                name = pending.pop()
                if name not in reached:
                    reached.add(name)
                    if self._nodes[name].op != "NextIteration" or len(self._loops.get(name, ())) > loops:
                        pending += self._next[name]
            self._known[start, loops] = reached
        return self._known[start, loops]

    def _find_loops(self) -> None:
        """For each node, the loops that it is in, the outermost one first."""
        pending = collections.deque(self._nodes)
        while pending:
            node = self._nodes[pending.popleft()]
            each = [self._loops.get(_node_of(tensor), ()) for tensor in node.input]
            loops = max(each, key=len, default=())
            if node.op == "Enter":
                loops = (*loops, node.attr["frame_name"].s.decode())
            elif node.op == "Exit":
                loops = loops[:-1]
            if loops != self._loops.get(node.name, ()):
                self._loops[node.name] = loops
                pending.extend(self._next[node.name])

    def _find_sides(self) -> None:
        """For each node, on which sides of which conditions it runs."""
        order = list(self._nodes)
        changed = True
        while changed:
            changed = False
            for name in order:
                sides = self._sides_of(self._nodes[name])
                if sides != self._sides.get(name, frozenset()):
                    self._sides[name] = sides
                    changed = True

    def _sides_of(self, node: Any) -> FrozenSet[Tuple[str, int]]:
        each = []
        for tensor in node.input:
            source = self._nodes.get(_node_of(tensor))
            sides = self._sides.get(_node_of(tensor), frozenset())
            if source is not None and source.op == "Switch" and not tensor.startswith("^"):
                condition = self._nodes.get(_node_of(source.input[1]))
                if condition is None or condition.op != "LoopCond":
                    sides = sides | {(_node_of(source.input[1]), int(tensor.endswith(":1")))}
            each.append(sides)
        if node.op == "NextIteration" or not each:
            return frozenset()
        if node.op == "Merge":
            return frozenset.intersection(*each)
        return frozenset.union(*each)

    def _exclude(self, a: str, b: str) -> bool:
        """Whether the two are on different sides of a condition."""
        sides = self._sides.get(b, frozenset())
        return any((condition, 1 - side) in sides for condition, side in self._sides.get(a, frozenset()))

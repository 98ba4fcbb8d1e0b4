"""Whether all ranks still have the same weights, in loops.

All ranks apply the same reduced gradients, so their weights stay equal to the bit. They drift apart where a
rank changes them by itself, and where an optimizer does not reduce. In `fit` the callbacks look (drift.py).
In a loop the ranks compare a hash of all trained variables that were broadcast: before an eager reduction of
gradients, and before a call of a function that reduces gradients, compiled or not. Nothing is in a graph.

Note [When the ranks compare]: between two steps all ranks have drawn as many tickets in an incarnation. They
compare when this number has passed 1, 2, 4 and so on, and later each 1,000. So all of them do, or none,
whatever steps have failed and whoever has left. Where a step of another rank has failed meanwhile, the
comparison fails as the step would have.

With SMDDP_CHECK_EVERY the steps themselves look (periodic_check.py), and this is off.
"""

from __future__ import annotations

import functools
import os
import warnings
from typing import Any, Dict, Tuple

import numpy as np
import tensorflow as tf

from smddp import WORLD, ReduceOp, runtime
from tf_smddp._base import tensorflow_private
from tf_smddp._collectives.allgather import allgather
from tf_smddp._collectives.allreduce import allreduce
from tf_smddp._graphs import function_graphs, op_parts
from tf_smddp._graphs.call_site import immediately
from tf_smddp._guards import gradient_use
from tf_smddp._guards.periodic_check import SETTING, warn_of_weights
from tf_smddp._guards.start_weights import hash_of, hash_of_array

_EVERY = 1000  # tickets
_MOST_ELEMENTS = 1 << 14  # of a variable are compared; of a larger one these are other rows each time
_REDUCES = "_tf_smddp_reduces_gradients"  # set on a graph
_NAME = "comparison of the ranks' weights"  # in errors, where ranks are at different collectives
_Key = Tuple[int, int]


class _State:
    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        self.incarnation = self.count = 0  # when the ranks have looked
        self.told = False


_state = _State()


def before_eager_reduction() -> None:
    """Looks, before gradients are reduced over all ranks, unless that is only written into a graph."""
    if runtime.size() > 1 and tf.executing_eagerly():
        _look()


def after_join() -> None:
    """All ranks go on from the same ticket. Those that had left have missed what the others have compared."""
    _state.incarnation, _state.count = op_parts.next_ticket()


def _after_init() -> None:
    if runtime.size() > 1:
        _watch_calls()


@functools.cache
def _watch_calls() -> None:
    tensorflow_private.before_each_function_call(_before_call)


def _before_call(function: Any) -> None:
    # An asynchronous call may still draw tickets when the next one begins.
    if (
        _reduces_gradients(function.graph)
        and runtime.is_initialized()
        and runtime.size() > 1
        and tf.config.experimental.get_synchronous_execution()
    ):
        _look()


def _reduces_gradients(graph: Any) -> bool:
    """Whether the function reduces gradients over all ranks."""
    known = getattr(graph, _REDUCES, None)
    if known is None:
        known = any(map(_reduces_a_gradient, function_graphs.ops_of(graph)))
        setattr(graph, _REDUCES, known)
    return bool(known)


def _reduces_a_gradient(op: tf.Operation) -> bool:
    if op.type not in function_graphs.TAKES_TICKET or op.get_attr("communicator") != WORLD:
        return False
    attributes = op.node_def.attr
    names = [attributes["tensor_name"].s, *attributes["tensor_names"].list.s]
    return any(map(op_parts.is_of_gradient, names))


def _look() -> None:
    """Compares the weights if it is time (Note [When the ranks compare]). Collective then; eager."""
    if SETTING in os.environ:
        return
    incarnation, count = op_parts.next_ticket()
    before = _state.count if incarnation == _state.incarnation else 0
    _state.incarnation, _state.count = incarnation, count
    if _period(count) != _period(before):
        with tf.init_scope(), immediately("tf_smddp"):  # the first one hides it from the user's tapes
            _compare(count)
        _state.incarnation, _state.count = op_parts.next_ticket()


def _period(count: int) -> int:
    return count.bit_length() if count < _EVERY else 10 + count // _EVERY


def _compare(count: int) -> None:
    """Warns, once, of a variable that differs. Collective."""
    shared = gradient_use.shared_ones()
    values = {key: _part_of(variable, count) for key, variable in shared.items()}
    if runtime.rank() == 0:
        broken = next((key for key, value in values.items() if not np.isfinite(value).all()), None)
        if broken is not None:
            warn_of_weights("tf_smddp", shared[broken].name)
    hashes = {key: hash_of_array(value) for key, value in sorted(values.items())}
    number = int.from_bytes(hash_of(repr(hashes).encode()), "little", signed=True)
    mine = np.array([number, ~number, _state.told])
    largest, negated_least, told = allreduce(mine, op=ReduceOp.MAX, name=_NAME).numpy()
    _state.told = bool(told)
    if largest != ~negated_least and not told:
        _tell(shared, hashes)


def _part_of(variable: tf.Variable, count: int) -> np.ndarray:
    """All elements of a small variable, else some rows, which are the same on all ranks."""
    elements = variable.shape.num_elements()
    if elements is None or elements <= _MOST_ELEMENTS or variable.shape[0] == 1:
        return np.asarray(variable.numpy())
    rows = variable.shape[0]
    some = np.random.default_rng(count).integers(rows, size=max(1, _MOST_ELEMENTS * rows // elements))
    # Once rows of a variable were read or updated in place, TensorFlow copies it in each dense read. So this
    # reads rows in place from an embedding alone.
    is_embedding = gradient_use.is_table(variable)
    part = variable.sparse_read(some) if is_embedding else tf.gather(variable.value(), some)
    return np.asarray(part.numpy())


def _tell(shared: Dict[_Key, tf.Variable], hashes: Dict[_Key, bytes]) -> None:
    """Collective. One rank alone may still have a variable that others have deleted: it is left out."""
    rows = [
        [runtime.rank(), *key, int.from_bytes(each, "little", signed=True)] for key, each in hashes.items()
    ]
    by_key: Dict[_Key, Dict[int, int]] = {}
    for rank, broadcast, place, each in allgather(np.array(rows, np.int64).reshape(-1, 4)).numpy().tolist():
        by_key.setdefault((broadcast, place), {})[rank] = each
    ranks = sorted({rank for of in by_key.values() for rank in of})
    common = {key: of for key, of in by_key.items() if len(of) == len(ranks)}
    differ = [key for key, of in sorted(common.items()) if len(set(of.values())) > 1]
    _state.told = bool(differ)
    if differ and runtime.rank() == ranks[0]:
        first = common[differ[0]]
        others = [str(rank) for rank in ranks if first[rank] != first[ranks[0]]]
        warnings.warn(
            f"tf_smddp: the ranks' weights differ: {len(differ)} of {len(common)} trained variables, first "
            f"{shared[differ[0]].name!r} of rank {', '.join(others)} from rank {ranks[0]}'s. Most likely an "
            "optimizer that does not reduce trains it: wrap each one in DistributedOptimizer, or its tape in "
            "DistributedGradientTape. Or a rank has changed it by itself: a checkpoint that it alone has "
            "loaded, an update on one rank only, or an operation that is not deterministic. "
            f"{SETTING}=1 finds the step; 0 turns this off.",
            stacklevel=2,
        )


runtime.after_init.append(_after_init)
runtime.at_shutdown.append(_state.forget)

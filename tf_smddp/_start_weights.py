"""Checks that all ranks have the same weights, before their first reduced gradients.

A script that forgets to broadcast them would train as many models as there are ranks, and average gradients
that do not belong together. Nothing else would tell: the gradients have the right shapes.

The check needs nothing in the training step. It runs when DistributedGradientTape or DistributedOptimizer
first sees a variable: in a tf.function that is while the step is traced, before it runs for the first time.
Ranks compare a hash of the variables' bytes. In v1 graphs, where variables have no values outside of a
session, there is no check; BroadcastGlobalVariablesHook is for them.
"""

from __future__ import annotations

import functools
import os
import warnings
import weakref
from typing import Any, Dict, List, Sequence

import numpy as np
import tensorflow as tf

from tf_smddp import _runtime, _tickets
from tf_smddp._allgather import allgather
from tf_smddp._allreduce import allreduce
from tf_smddp._broadcast import broadcast_variables
from tf_smddp._conversion import unwrapped
from tf_smddp._hashes import BYTES, hash_of, number_of
from tf_smddp._immediately import immediately
from tf_smddp._reduce_op import ReduceOp

SETTING = "SMDDP_UNEQUAL_WEIGHTS"
_MOST_RANKS_NAMED = 8

# The variables and optimizers that were checked since init(), by id.
_checked: Dict[int, weakref.ref[Any]] = {}
_runtime.at_shutdown.append(_checked.clear)


def make_equal(variables: Sequence[Any], caller: str, optimizer: Any = None) -> None:
    """Compares variables that were not compared before, and gives all ranks rank 0's values if they differ.

    Collective for variables that are new, which must be the same ones on all ranks; else it does nothing.
    While rank 0 waits in join(), the lowest rank that does not stands in for it.

    Args:
        variables: what is trained. What has no value yet, or is no variable, is left out.
        caller: the public function, for errors.
        optimizer: what trains them; when it is new, the variables that it has by now are compared, too. They
            are not looked for later, when one rank alone may trace its step once more.

    Raises:
        RuntimeError: the values differ, and the setting says that this is an error.
        ValueError: the setting has another value than `broadcast`, `error` and `ignore`.
    """
    if _runtime.size() == 1 or _tickets.pairs_by_name():
        return
    new = _new(variables)
    if not new:
        return
    if optimizer is not None and id(optimizer) not in _checked:
        _remember([optimizer])
        new += _new(_variables_of(optimizer))
    _remember(new)
    choice = _setting()
    if choice == "ignore":
        return
    with tf.init_scope():
        _compare([unwrapped(each) for each in new], choice, caller)


def note_equal(variables: Sequence[Any]) -> None:
    """Marks that all ranks have the same values, so that no rank compares them any more.

    A rank that had no batch, and so has compared nothing, would wait for the others to compare them, too.
    """
    _remember(_new(variables))


def _new(variables: Sequence[Any]) -> List[Any]:
    return [each for each in variables if id(unwrapped(each)) not in _checked and _has_value(each)]


def _remember(objects: Sequence[Any]) -> None:
    for each in map(unwrapped, objects):
        _checked[id(each)] = weakref.ref(each, functools.partial(_forget, id(each)))


def _forget(key: int, _: Any) -> None:
    _checked.pop(key, None)


def _variables_of(optimizer: Any) -> List[Any]:
    found = getattr(optimizer, "variables", ())
    return list(found() if callable(found) else found)


def _setting() -> str:
    choice = os.environ.get(SETTING, "broadcast")
    if choice not in ("broadcast", "error", "ignore"):
        raise ValueError(f"{SETTING} must be 'broadcast', 'error' or 'ignore', but is {choice!r}.")
    return choice


def _has_value(variable: Any) -> bool:
    """Whether it is a variable with a value; one that a function creates has it after the first trace."""
    found = unwrapped(variable)
    if not isinstance(found, tf.Variable):
        return False
    with tf.init_scope():
        return bool(found.is_initialized())


def _compare(variables: Sequence[tf.Variable], choice: str, caller: str) -> None:
    hashes = [_hash_of(each) for each in variables]
    with immediately(caller):
        if _are_same_everywhere(hashes):
            return
        by_rank = _of_all_ranks(hashes)
    if len({tuple(each[:BYTES] for each in of) for of in by_rank.values()}) > 1:
        return  # different variables, which the errors of their gradients name
    root = min(by_rank)  # rank 0, unless it waits in join()
    what = _difference([each.name for each in variables], by_rank, root)
    remedy = (
        "Create the variables, and then call broadcast_variables() or use BroadcastGlobalVariablesCallback"
    )
    if choice == "error":
        raise RuntimeError(f"{caller}: {what}. {remedy}.")
    broadcast_variables(variables, root_rank=root)
    if _runtime.rank() == root:
        warnings.warn(
            f"{caller}: {what}. All ranks have got rank {root}'s values now. {remedy}, to do so yourself; "
            f"{SETTING}=error makes this an error.",
            stacklevel=2,
        )


# These are in the sequence of the gradients, which follow: another thread may be at out-of-band collectives.
def _are_same_everywhere(hashes: Sequence[bytes]) -> bool:
    """Collective: whether all ranks have the same hashes."""
    number = number_of(hashes)
    largest, negated_least = allreduce(np.array([number, ~number]), op=ReduceOp.MAX).numpy()
    return bool(largest == ~negated_least)


def _of_all_ranks(hashes: Sequence[bytes]) -> Dict[int, List[bytes]]:
    """Collective: the hashes of each rank; of those that do not wait in join()."""
    ranks, counts = allgather(np.array([[_runtime.rank(), len(hashes)]])).numpy().T
    rows = np.frombuffer(b"".join(hashes), np.uint8).reshape(len(hashes), 2 * BYTES)
    parts = np.split(allgather(rows).numpy(), np.cumsum(counts)[:-1])
    return {int(rank): [row.tobytes() for row in part] for rank, part in zip(ranks, parts)}


def _hash_of(variable: tf.Variable) -> bytes:
    """Returns a hash of what kind of variable it is, and then one of its value."""
    value = variable.numpy()
    kind = f"{value.dtype} {value.shape}".encode()
    return hash_of(kind) + hash_of(value.tobytes())


def _difference(names: Sequence[str], by_rank: Dict[int, List[bytes]], root: int) -> str:
    """Says which variable is the first that differs from `root`'s, and on which ranks."""
    roots = by_rank[root]
    differs = [i for i in range(len(names)) if any(each[i] != roots[i] for each in by_rank.values())]
    first = differs[0]
    ranks = [rank for rank, each in by_rank.items() if each[first] != roots[first]]
    named = ", ".join(map(str, ranks[:_MOST_RANKS_NAMED])) + ", ..." * (len(ranks) > _MOST_RANKS_NAMED)
    return (
        f"the ranks' weights differ before the first reduced gradients, in {len(differs)} of {len(names)} "
        f"variables: {names[first]!r} of rank{'s' * (len(ranks) > 1)} {named} is not rank {root}'s"
    )

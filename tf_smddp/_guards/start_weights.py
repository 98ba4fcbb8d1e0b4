"""Checks that all ranks have the same weights, before their first reduced gradients.

A script that forgets to broadcast them would train as many models as there are ranks, and average gradients
that do not belong together. Nothing else would tell: the gradients have the right shapes.

The check needs nothing in the training step. It runs when DistributedGradientTape or DistributedOptimizer
first sees a variable: in a tf.function that is while the step is traced, before it runs for the first time.
Ranks compare a hash of the variables' names and bytes. In v1 graphs, where variables have no values outside
of a session, there is no check; BroadcastGlobalVariablesHook is for them.

Each variable gets a number, which is the same on all ranks that compare it. Its gradients carry the number,
so that a later list of variables in another order is found.
"""

from __future__ import annotations

import functools
import hashlib
import os
import warnings
import weakref
from typing import Any, Dict, List, Sequence, Tuple

import numpy as np
import tensorflow as tf

from smddp import ReduceOp, runtime
from tf_smddp._base.arguments import is_part, source_label, unwrapped
from tf_smddp._collectives.allgather import allgather
from tf_smddp._collectives.allreduce import allreduce
from tf_smddp._collectives.broadcast import broadcast_variables
from tf_smddp._graphs import tickets
from tf_smddp._graphs.call_site import immediately
from tf_smddp._guards import gradient_use

BYTES = 8  # of a hash


def hash_of(data: bytes) -> bytes:
    """Returns a hash of BYTES bytes."""
    return hashlib.blake2b(data, digest_size=BYTES).digest()


def hash_of_array(array: np.ndarray) -> bytes:
    """Returns a hash of the array's elements, of BYTES bytes."""
    elements = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    return hashlib.blake2b(elements, digest_size=BYTES).digest()


def number_of(hashes: Sequence[bytes]) -> int:
    """Returns a number of 64 bits, with a sign, for a list of hashes.

    Ranks have the same list if the largest number of all is the smallest, too: if for (number, ~number) the
    maxima over all ranks are (n, ~n).
    """
    return int.from_bytes(hash_of(b"".join(hashes)), "little", signed=True)


SETTING = "SMDDP_UNEQUAL_WEIGHTS"
_MOST_RANKS_NAMED = 8

# The variables and optimizers that were checked since init(), by id.
_checked: Dict[int, weakref.ref[Any]] = {}
_numbers: Dict[int, int] = {}
runtime.at_shutdown += [_checked.clear, _numbers.clear]


def make_equal(
    variables: Sequence[Any], caller: str, optimizer: Any = None, broadcast_may_follow: bool = False
) -> None:
    """Compares variables that were not compared before, and gives all ranks rank 0's values if they differ.

    Collective for variables that are new, which must be the same ones on all ranks; else it does nothing.
    While rank 0 waits in join(), the lowest rank that does not stands in for it.

    Args:
        variables: those that are trained. Those without a value, and tensors, are left out.
        caller: the public function, for errors.
        optimizer: what trains them; when it is new, the variables that it has by now are compared, too. They
            are not looked for later, when one rank alone may trace its step once more.
        broadcast_may_follow: whether to warn only at the end of the job, and not if variables are broadcast
            until then: Horovod's scripts do so after the first batch.

    Raises:
        RuntimeError: the variables are in another order; or the values differ, and the setting says that this
            is an error.
        ValueError: the setting has another value than `broadcast`, `error` and `ignore`.
    """
    if runtime.size() == 1 or tickets.pairs_by_name():
        return
    new = _new(variables)
    if not new:
        return
    _remember(new)
    is_new = optimizer is not None and id(optimizer) not in _checked
    state = _new(_variables_of(optimizer)) if is_new else []
    _remember([*state, optimizer] if is_new else [])
    choice = _setting()
    if choice == "ignore":
        return
    with tf.init_scope():
        if _compare([*new, *state], choice, caller, broadcast_may_follow) or not is_new:
            return
        # An optimizer that one rank alone has restored, or built, has variables there alone.
        if _compare(new, choice, caller, broadcast_may_follow):
            _tell_of_state(choice, caller, type(optimizer).__name__)


def number_of_variable(variable: Any) -> int:
    """The number of a variable that the ranks have compared; 0 if this rank has not."""
    return _numbers.get(id(unwrapped(variable)), 0)


def note_equal(variables: Sequence[Any]) -> None:
    """Marks that all ranks have the same values, so that no rank compares them any more.

    A rank that had no batch, and so has compared nothing, would wait for the others to compare them, too.
    """
    _remember(_new(variables))


def _new(variables: Sequence[Any]) -> List[Any]:
    return [
        each
        for each in variables
        if id(unwrapped(each)) not in _checked and _has_value(each) and not is_part(each)
    ]


def _remember(objects: Sequence[Any]) -> None:
    for each in map(unwrapped, objects):
        _checked[id(each)] = weakref.ref(each, functools.partial(_forget, id(each)))


def _forget(key: int, _: Any) -> None:
    _checked.pop(key, None)
    _numbers.pop(key, None)


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


def _compare(new: Sequence[Any], choice: str, caller: str, broadcast_may_follow: bool) -> bool:
    """Collective. Returns whether all ranks have as many variables, of the same types and shapes.

    For trained variables that are not, the errors of their gradients name them.
    """
    variables = [unwrapped(each) for each in new]
    names = [source_label(each) for each in new]
    hashes = [hash_with_kind(each.numpy(), name) for each, name in zip(variables, names)]
    with immediately(caller):
        are_same, first = _are_same_everywhere(hashes)
        by_rank = {} if are_same else of_all_ranks(hashes)
    if len({tuple(each[:BYTES] for each in of) for of in by_rank.values()}) > 1:
        return False
    _numbers.update({id(each): first + i for i, each in enumerate(variables)})
    if are_same:
        return True
    root = min(by_rank)  # rank 0, unless it waits in join()
    _check_order(names, by_rank, root, caller)
    by_rank = {rank: [each[: 2 * BYTES] for each in of] for rank, of in by_rank.items()}
    if all(of == by_rank[root] for of in by_rank.values()):
        return True  # but for their names, which may differ
    what = _difference([each.name for each in variables], by_rank, root)
    remedy = (
        "Create the variables, and then call broadcast_variables() or use BroadcastGlobalVariablesCallback"
    )
    if choice == "error":
        raise RuntimeError(f"{caller}: {what}. {remedy}.")
    broadcast_variables(variables, root_rank=root)
    if runtime.rank() == root:
        text = (
            f"{caller}: {what}. All ranks have got rank {root}'s values now. {remedy}, to do so yourself; "
            f"{SETTING}=error makes this an error."
        )
        if broadcast_may_follow:
            gradient_use.warn_unless_broadcast(text)
        else:
            warnings.warn(text, stacklevel=2)
    return True


def _tell_of_state(choice: str, caller: str, kind: str) -> None:
    text = (
        f"{caller}: the optimizer ({kind}) has other variables on some ranks than on others before the first "
        "reduced gradients, as when one rank alone has restored or built it. If their values are not those "
        "that a new optimizer has, the ranks will train apart. Build or restore it on all ranks."
    )
    if choice == "error":
        raise RuntimeError(text)
    if runtime.rank() == 0:
        warnings.warn(text, stacklevel=2)


# These are in the sequence of the gradients, which follow: another thread may be at out-of-band collectives.
def _are_same_everywhere(hashes: Sequence[bytes]) -> Tuple[bool, int]:
    """Collective: whether all ranks have the same hashes, and the first number that no variable has yet."""
    number = number_of(hashes)
    first = max(_numbers.values(), default=0) + 1
    largest, negated_least, first = allreduce(np.array([number, ~number, first]), op=ReduceOp.MAX).numpy()
    return bool(largest == ~negated_least), int(first)


def of_all_ranks(hashes: Sequence[bytes]) -> Dict[int, List[bytes]]:
    """Collective: the hashes of each rank; of those that do not wait in join()."""
    ranks, counts = allgather(np.array([[runtime.rank(), len(hashes)]])).numpy().T
    rows = np.frombuffer(b"".join(hashes), np.uint8).reshape(len(hashes), 3 * BYTES)
    parts = np.split(allgather(rows).numpy(), np.cumsum(counts)[:-1])
    return {int(rank): [row.tobytes() for row in part] for rank, part in zip(ranks, parts)}


def hash_with_kind(value: np.ndarray, name: str = "") -> bytes:
    """Returns a hash of what kind of variable has this value, then one of the value, and one of the name."""
    kind = f"{value.dtype} {value.shape}".encode()
    return hash_of(kind) + hash_of_array(value) + hash_of(name.encode())


def _check_order(names: Sequence[str], by_rank: Dict[int, List[bytes]], root: int, caller: str) -> None:
    """Raises a RuntimeError on all ranks if they have variables of the same names in another order.

    Names that differ prove nothing: the first `dense` of one rank may be the third `dense` of another.
    """
    names_of = {rank: [each[2 * BYTES :] for each in of] for rank, of in by_rank.items()}
    for rank, of in names_of.items():
        if of != names_of[root] and sorted(of) == sorted(names_of[root]):
            place = next(i for i, (one, other) in enumerate(zip(of, names_of[root])) if one != other)
            mine = names_of[runtime.rank()]
            of_root, of_rank = (
                repr(names[mine.index(hashed)]) if hashed in mine else "another one"
                for hashed in (names_of[root][place], of[place])
            )
            raise RuntimeError(
                f"{caller}: the ranks have the same variables in another order: number {place} (counted from "
                f"0) is {of_root} on rank {root}, and {of_rank} on rank {rank}. Their gradients would be "
                "mixed. Give them in the same order on all ranks (a set has none)."
            )


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

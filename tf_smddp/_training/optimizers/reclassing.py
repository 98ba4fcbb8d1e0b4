"""Makes an optimizer another one: the object stays the same, but its class becomes a subclass of its class.

So the object keeps its variables, `iterations`, schedules, restored checkpoints, and its place in a compiled
model. A new optimizer from `get_config()` would lose all of that.

`optimizer.__class__` is still the plain class. Keras reads it when it saves the optimizer, so the plain
optimizer is saved, and loads without tf_smddp. `isinstance` holds for both classes, and `type()` returns the
subclass. Each optimizer has a subclass of its own, which knows how the optimizer reduces. So what this class
makes, as `optimizer.from_config` does, reduces in the same way.
"""

from __future__ import annotations

import types
from typing import Any, Dict

_STATE = "_tf_smddp_state"


class Distributed:
    """Base class of the classes that are put in front of an optimizer's own."""


class Averages:
    """Base class of the classes that LocalSGD puts there."""

    def synchronize(self) -> None:
        """Averages the weights of all ranks, unless that is done. Collective."""
        state_of(self).synchronize()

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise TypeError("An optimizer of LocalSGD cannot be copied. Copy the plain one, and wrap each copy.")

    def __deepcopy__(self, memo: Any) -> Any:
        return self.__reduce_ex__(4)


def is_distributed(optimizer: Any) -> bool:
    """Returns whether this optimizer itself (not one that it wraps) reduces gradients."""
    return issubclass(type(optimizer), Distributed)


def make_distributed(optimizer: Any, mixin: type, state: Any) -> None:
    """Puts `mixin` in front of the optimizer's class; `state_of(optimizer)` is `state`.

    Args:
        optimizer: a plain one.
        mixin: what reduces the gradients, or averages the weights.
        state: has `copy()`, which gives another optimizer a state that does so in the same way.
    """
    _set_state(optimizer, state)
    object.__setattr__(optimizer, "__class__", _make_subclass(mixin, type(optimizer), state))


def state_of(optimizer: Any) -> Any:
    """Returns the `state` that was passed to `make_distributed`, or a copy if its class made this one."""
    if _STATE not in optimizer.__dict__:
        _set_state(optimizer, getattr(type(optimizer), _STATE).copy())
    return optimizer.__dict__[_STATE]


def _set_state(optimizer: Any, state: Any) -> None:
    # setattr would not do, because the optimizers' own version tracks values for checkpoints.
    object.__setattr__(optimizer, _STATE, state)


def _make_subclass(mixin: type, plain: type, state: Any) -> type:
    def fill(namespace: Dict[str, Any]) -> None:
        namespace["__class__"] = property(lambda self: plain)
        for name in ("__module__", "__qualname__", "__doc__"):
            namespace[name] = getattr(plain, name)
        namespace[_STATE] = state

    return types.new_class(plain.__name__, (mixin, plain), {}, fill)


def has_ancestor(value: Any, name: str) -> bool:
    """Returns whether a class with the name `name` from Keras or tf_keras is among the value's classes.

    Classes are compared by name, so that this imports neither library, and neither need be installed.
    """
    return any(
        ancestor.__name__ == name and ancestor.__module__.split(".")[0] in ("keras", "tf_keras")
        for ancestor in type(value).__mro__
    )

"""Makes an optimizer distributed: the object stays the same, but its class becomes a subclass of its class.

So the object keeps its variables, `iterations`, schedules, restored checkpoints, and its place in a compiled
model. A new optimizer from `get_config()` would lose all of that.

`optimizer.__class__` is still the plain class. Keras reads it when it saves the optimizer, so the plain
optimizer is saved, and loads without tf_smddp. `isinstance` holds for both classes, and `type()` returns the
subclass.
"""

from __future__ import annotations

import types
from typing import Any, Dict, Tuple

_STATE = "_tf_smddp_state"
# There is one subclass for each pair, so that two optimizers of one class still have one class.
_subclasses: Dict[Tuple[type, type], type] = {}


class Distributed:
    """Base class of the classes that are put in front of an optimizer's own."""


def is_distributed(optimizer: Any) -> bool:
    """Returns whether this optimizer itself (not one that it wraps) reduces gradients."""
    return issubclass(type(optimizer), Distributed)


def make_distributed(optimizer: Any, mixin: type, state: Any) -> None:
    """Puts `mixin`, a Distributed, in front of the optimizer's class; `state_of(optimizer)` is `state`."""
    # setattr would not do, because the optimizers' own version tracks values for checkpoints.
    object.__setattr__(optimizer, _STATE, state)
    object.__setattr__(optimizer, "__class__", _subclass(mixin, type(optimizer)))


def state_of(optimizer: Any) -> Any:
    """Returns the `state` that was passed to `make_distributed`."""
    return optimizer.__dict__[_STATE]


def _subclass(mixin: type, plain: type) -> type:
    if (mixin, plain) not in _subclasses:
        _subclasses[mixin, plain] = _make_subclass(mixin, plain)
    return _subclasses[mixin, plain]


def _make_subclass(mixin: type, plain: type) -> type:
    def fill(namespace: Dict[str, Any]) -> None:
        namespace["__class__"] = property(lambda self: plain)
        for name in ("__module__", "__qualname__", "__doc__"):
            namespace[name] = getattr(plain, name)
        if hasattr(plain, "from_config"):
            # Otherwise it would create an object of the subclass, without a state.
            namespace["from_config"] = plain.from_config

    return types.new_class(plain.__name__, (mixin, plain), {}, fill)


def has_ancestor(value: Any, name: str) -> bool:
    """Returns whether a class with the name `name` from Keras or tf_keras is among the value's classes.

    Classes are compared by name, so that this imports neither library, and neither need be installed.
    """
    return any(
        ancestor.__name__ == name and ancestor.__module__.split(".")[0] in ("keras", "tf_keras")
        for ancestor in type(value).__mro__
    )

"""How an optimizer becomes distributed: the object stays, its class becomes a subclass of what it was.

So everything that it holds stays too: variables that exist already, `iterations`, schedules, what a
checkpoint has restored, its place in a compiled model. Making a new one from `get_config()` loses all that.

For whoever asks the object for its `__class__`, it is still the plain class. Keras asks so when it saves, for
the class's module and name and for the name under which a user registered it: what is written down is the
plain optimizer, and loads where there is no tf_smddp. `isinstance` holds for both, and `type()` tells them
apart.
"""

from __future__ import annotations

import types
from typing import Any, Dict, Tuple

_STATE = "_tf_smddp_state"
# One for each pair, so that two optimizers of one class stay of one class.
_subclasses: Dict[Tuple[type, type], type] = {}


class Distributed:
    """Base class of the classes that are put in front of an optimizer's own."""


def is_distributed(optimizer: Any) -> bool:
    """Whether this optimizer itself (not one that it wraps) reduces gradients."""
    return issubclass(type(optimizer), Distributed)


def make_distributed(optimizer: Any, mixin: type, state: Any) -> None:
    """Puts `mixin`, a Distributed, in front of the optimizer's class; `state_of(optimizer)` is `state`."""
    # Not setattr: the optimizers' own tracks what it is given, for checkpoints.
    object.__setattr__(optimizer, _STATE, state)
    object.__setattr__(optimizer, "__class__", _subclass(mixin, type(optimizer)))


def state_of(optimizer: Any) -> Any:
    """What `make_distributed` was given."""
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
            # Found through the object, it would make one of this class, without a state.
            namespace["from_config"] = plain.from_config

    return types.new_class(plain.__name__, (mixin, plain), {}, fill)


def has_ancestor(value: Any, name: str) -> bool:
    """Whether a class called `name` of Keras or tf_keras is among the classes of the value.

    By name, so that asking imports neither, and that each of the two can be there or not.
    """
    return any(
        ancestor.__name__ == name and ancestor.__module__.split(".")[0] in ("keras", "tf_keras")
        for ancestor in type(value).__mro__
    )

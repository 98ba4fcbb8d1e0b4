"""device_dense, device_sparse and device: arguments that scripts pass and that have no meaning here."""

from __future__ import annotations

import warnings

_warned = False


def warn_about_device_hints(caller: str, device_dense: str, device_sparse: str) -> None:
    """Warns, once in a process, if one of the two is set: SMDDP did not support them either."""
    global _warned
    if _warned or not (device_dense or device_sparse):
        return
    _warned = True
    warnings.warn(
        f"{caller}: device_dense={device_dense!r} and device_sparse={device_sparse!r} are ignored: "
        "gradients are reduced where they are. Leave the arguments out.",
        stacklevel=3,
    )


def warn_about_device_hint(caller: str, device: str) -> None:
    """Warns, once in a process, if `device` is set: the one argument that broadcasts have."""
    global _warned
    if _warned or not device:
        return
    _warned = True
    warnings.warn(
        f"{caller}: device={device!r} is ignored: variables are broadcast where they are. "
        "Leave the argument out.",
        stacklevel=3,
    )

"""device_dense and device_sparse: arguments that scripts pass and that have no meaning here."""

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

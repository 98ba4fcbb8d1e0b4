"""setBucketSize: how SMDDP's scripts choose the size of its buckets.

In tf_smddp that is SMDDP_BUCKET_CAP_BYTES (docs/configuration.md), which `init` reads, and which must be
equal on all ranks. This module sets it for scripts that call SMDDP's function.
"""

import operator
import os
import warnings

import tf_smddp

__all__ = ["setBucketSize"]

_VARIABLE = "SMDDP_BUCKET_CAP_BYTES"
_MULTIPLE = 128
_warned = False


def setBucketSize(size_bytes: int) -> None:
    """Sets the number of bytes at which a batch of gradients is sealed. Every rank must call it alike.

    Before `init` it counts for this job. After `init` the engines of all ranks have agreed on a size, which
    stays: the call counts for the next `init`, after a `shutdown`, and warns once in a process. It changes
    the speed only, never a value.

    Args:
        size_bytes: a positive multiple of 128; `init` has an upper limit, and names it.

    Raises:
        TypeError: `size_bytes` is not an integer.
        ValueError: it is not a positive multiple of 128.
    """
    global _warned
    if isinstance(size_bytes, bool):
        raise TypeError(f"setBucketSize() needs a number of bytes as an integer, but got {size_bytes!r}.")
    try:
        size_bytes = operator.index(size_bytes)
    except TypeError:
        raise TypeError(
            f"setBucketSize() needs a number of bytes as an integer, but got {size_bytes!r}."
        ) from None
    if size_bytes <= 0 or size_bytes % _MULTIPLE:
        raise ValueError(
            f"setBucketSize() needs a positive multiple of {_MULTIPLE} bytes, but got {size_bytes}."
        )
    os.environ[_VARIABLE] = str(size_bytes)
    if tf_smddp.is_initialized() and not _warned:
        _warned = True
        warnings.warn(
            f"setBucketSize({size_bytes}) was called after init(), when the ranks have agreed on a size: it "
            f"does not change this job. Call it before init(), or set {_VARIABLE}.",
            stacklevel=2,
        )

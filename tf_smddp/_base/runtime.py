"""The job of this process (smddp/runtime.py), as functions that graphs are traced in may call it.

What begins and ends with it on TensorFlow's side is here, too.
"""

from __future__ import annotations

import os
import warnings

import smddp
from smddp.runtime import after_init, at_shutdown, before_shutdown, init, require_initialized, shutdown
from tf_smddp._base import op_library
from tf_smddp._base.autograph import not_converted

__all__ = [
    "after_init",
    "at_shutdown",
    "before_shutdown",
    "init",
    "is_initialized",
    "local_rank",
    "local_size",
    "rank",
    "require_initialized",
    "shutdown",
    "size",
]

is_initialized = not_converted(smddp.is_initialized)
rank = not_converted(smddp.rank)
size = not_converted(smddp.size)
local_rank = not_converted(smddp.local_rank)
local_size = not_converted(smddp.local_size)

_lib = op_library.load()[1]


def _after_init() -> None:
    _lib.tf_smddp_after_init()
    if rank() == 0 and os.environ.get("TF_CONFIG"):
        warnings.warn(
            "TF_CONFIG is set. tf_smddp does not read it, since the launcher says which ranks there are. "
            "tf.distribute and tf.estimator do: an estimator then starts servers of its own, or waits for "
            "other workers. Unset it for this job.",
            stacklevel=3,
        )


after_init.append(_after_init)
at_shutdown.append(_lib.tf_smddp_after_shutdown)

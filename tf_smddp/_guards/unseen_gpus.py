"""Notices GPUs that TensorFlow does not see: it registers none, and all ranks compute on CPUs.

The cause is a library that TensorFlow misses (mostly cuDNN), tensorflow-cpu in the place of tensorflow, or a
driver that does not begin. TensorFlow says so in its log, in a line among many. `smddprun --check` finds out
more.
"""

from __future__ import annotations

import functools
import os
import warnings

import tensorflow as tf

from smddp import runtime
from smddprun import gpus


@functools.cache
def warn() -> None:
    """Warns, once and on one rank of each host. Call it when a script has chosen its devices."""
    if runtime.size() == 1 or runtime.local_rank() != 0 or tf.config.list_physical_devices("GPU"):
        return
    there = gpus.count(os.environ)  # no driver begins for it
    if there > 0:
        warnings.warn(
            f"This host has {there} NVIDIA GPU{'s' if there > 1 else ''}, and TensorFlow sees none, so the "
            "ranks compute on the CPU. `smddprun --check` says why. If that is meant, set "
            "CUDA_VISIBLE_DEVICES=-1.",
            stacklevel=4,
        )

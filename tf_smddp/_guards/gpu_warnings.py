"""Warnings of mistakes with GPUs that give no error: TensorFlow sees none, or its determinism comes too late.

Where TensorFlow misses a library (mostly cuDNN), or it is tensorflow-cpu, or the driver does not begin, it
registers no GPU, and all ranks compute on CPUs. It says so in its log, in a line among many. `smddprun
--check` finds out more.
"""

from __future__ import annotations

import functools
import os
import warnings

import tensorflow as tf

from smddp import runtime, settings
from smddprun import gpus
from tf_smddp._base import tensorflow_private


@functools.cache
def warn_of_unseen_gpus() -> None:
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


@functools.cache
def warn_of_late_determinism() -> None:
    """Warns once if TensorFlow's ops have become deterministic after `init`, and so NCCL's sums are not."""
    if not tensorflow_private.ops_are_deterministic() or settings.DETERMINISTIC in os.environ:
        return
    if tf.config.list_physical_devices("GPU"):
        warnings.warn(
            "tf.config.experimental.enable_op_determinism() was called after init(), so what NCCL adds up on "
            "GPUs may differ from run to run in the last bits. Call it before init(), on all ranks, or set "
            f"{settings.DETERMINISTIC}=1.",
            stacklevel=3,
        )

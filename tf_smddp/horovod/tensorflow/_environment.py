"""The meaning of HOROVOD_… variables: those with an equal of tf_smddp's set it, others are named once.

horovodrun's own, such as HOROVOD_RANK, are read where the ranks are found (kernels/common/launch_families.h).
"""

from __future__ import annotations

import warnings
from typing import MutableMapping, Optional

_LOG_LEVELS = {
    "trace": "debug",
    "debug": "debug",
    "info": "info",
    "warning": "warning",
    "error": "error",
    "fatal": "error",
}
# They tune what Horovod's background thread does, which there is not here.
WITHOUT_EFFECT = (
    *("AUTOTUNE", "AUTOTUNE_LOG", "BATCH_D2D_MEMCOPIES", "CACHE_CAPACITY", "CYCLE_TIME"),
    *("DISABLE_GROUP_FUSION", "FUSION_THRESHOLD", "HIERARCHICAL_ALLGATHER", "HIERARCHICAL_ALLREDUCE"),
    *("NUM_NCCL_STREAMS", "THREAD_AFFINITY", "TIMELINE_MARK_CYCLES"),
)


def apply_settings(variables: MutableMapping[str, str]) -> None:
    """Sets tf_smddp's variables from Horovod's; those that are set already stay. Call it before init().

    Args:
        variables: the environment.
    """
    equals = {
        "SMDDP_STALL_WARNING": _stall_warning(variables),
        "SMDDP_STALL_TIMEOUT": _seconds(variables, "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS"),
        "SMDDP_LOG_LEVEL": _LOG_LEVELS.get(variables.get("HOROVOD_LOG_LEVEL", "").lower()),
    }
    for name, value in equals.items():
        if value is not None:
            variables.setdefault(name, value)


def timeline(variables: MutableMapping[str, str]) -> Optional[str]:
    """Returns where Horovod would write its timeline from the start; None if nowhere."""
    path = variables.get("HOROVOD_TIMELINE")
    return None if path in (None, "", "DYNAMIC") else path


def warn_about_others(variables: MutableMapping[str, str]) -> None:
    """Names the variables that have no effect here, in one line."""
    found = [f"HOROVOD_{name}" for name in WITHOUT_EFFECT if variables.get(f"HOROVOD_{name}")]
    if found:
        warnings.warn(
            f"tf_smddp.horovod: without effect here: {', '.join(found)}. docs/horovod.md says which "
            "variables have one.",
            stacklevel=3,
        )


def _stall_warning(variables: MutableMapping[str, str]) -> Optional[str]:
    if variables.get("HOROVOD_STALL_CHECK_DISABLE", "0") not in ("", "0"):
        return "0"
    return _seconds(variables, "HOROVOD_STALL_CHECK_TIME_SECONDS")


def _seconds(variables: MutableMapping[str, str], name: str) -> Optional[str]:
    text = variables.get(name, "")
    return text if text.isdecimal() else None

"""Mistakes in the environment variables of a job, and a variable of NCCL's that follows from ours.

A setting whose name has a typing error would change nothing, without a word.
"""

from __future__ import annotations

import difflib
import os
import warnings
from typing import Iterable

PREFIX = "SMDDP_"
DETERMINISTIC = "SMDDP_DETERMINISTIC"
# Those of docs/configuration.md. `SMDDP_TEST_...` are for tests.
KNOWN = frozenset(
    PREFIX + name
    for name in (
        "RANK",
        "SIZE",
        "LOCAL_RANK",
        "LOCAL_SIZE",
        "RENDEZVOUS",
        "JOB_ID",
        "TMPDIR",
        "BUCKET_CAP_BYTES",
        "SMALL_BYTES",
        "CHUNK_BYTES",
        "TABLE_SLOTS",
        "DETERMINISTIC",
        "ARENA_BYTES",
        "BOOTSTRAP_TIMEOUT",
        "STALL_WARNING",
        "STALL_TIMEOUT",
        "HOST_TIMEOUT",
        "NCCL",
        "NCCL_TIMEOUT",
        "NCCL_LIBRARY",
        "MPI_LIBRARY",
        "LOG_LEVEL",
        "UNEQUAL_WEIGHTS",
        "CHECK_EVERY",
        "RESTART_COUNT",
        "STATE_DIR",
        "TIMELINE",
        "SUMMARY",
        "METRICS_PORT",
        "LAUNCHER",
    )
)


def warn_about_unknown(names: Iterable[str]) -> None:
    """Warns about each name that begins as ours do and is none, with the nearest one that is.

    Args:
        names: of environment variables.
    """
    for name in sorted(names):
        if not name.startswith(PREFIX) or name.startswith(f"{PREFIX}TEST_") or name in KNOWN:
            continue
        # Without what all have in common, which would make any two of them alike.
        ends = {known[len(PREFIX) :]: known for known in sorted(KNOWN)}
        nearest = [ends[end] for end in difflib.get_close_matches(name[len(PREFIX) :], ends, n=1)]
        remedy = f"Did you mean {nearest[0]}?" if nearest else f"There are {', '.join(sorted(KNOWN))}."
        warnings.warn(
            f"tf_smddp knows no environment variable {name}, so it changes nothing. {remedy}", stacklevel=3
        )


def keep_nccl_deterministic() -> None:
    """Where the reductions are to be deterministic, keeps NCCL from those that switches do (NVLS, CollNet).

    The order in which a switch adds is not the same each time. A ring's is.
    """
    if os.environ.get(DETERMINISTIC) == "1":
        os.environ.setdefault("NCCL_ALGO", "Ring")

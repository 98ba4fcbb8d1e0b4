"""stats: what this rank's collectives have cost. docs/watching.md says how to read the figures."""

from __future__ import annotations

import ctypes
import json
from typing import Any, Dict

from tf_smddp import _library
from tf_smddp._autograph import not_converted
from tf_smddp._runtime import require_initialized

# More than the figures of the most process sets that a job can have.
_TEXT_BYTES = 1 << 18

_lib = _library.load()[1]


@not_converted
def stats(reset: bool = False) -> Dict[str, Any]:
    """Returns what this rank's collectives have cost since `init`, or since the last reset.

    Not a collective: each rank counts for itself. Costs a few microseconds; may be called at any time, from
    any thread. Inside a `tf.function` it is called once, when the function is traced.

    Args:
        reset: True counts from 0 again after this call.

    Returns:
        A dict of plain numbers, lists and dicts:

        - "rank", "size": who counted.
        - "arena_bytes", "arena_used_bytes", "arena_peak_bytes", "arena_refused_calls": how large this rank's
          shared memory can get, how much of it is in use, the most that was, and how many tensors had no room
          there; 0 in a job of one rank.
        - "collectives": by kind ("allreduce", "broadcast", "barrier", "allgather", "reducescatter",
          "alltoall"), over all process sets, also those that have been removed: "calls" (that have
          completed), "errors" (that have ended with an error instead), "bytes" (of this rank's inputs),
          "staged_bytes" (of those, what went through windows since some rank's tensor lay in private
          memory), "in_place_bytes" (of those whose result took the place of the input), "small_calls" (that
          the rank which came last did for all, or each rank for itself), "express_calls" (the latter of
          these), "waiting_seconds" (for other ranks, added up over the calls), "moving_seconds" (spent
          reading, combining and writing data).
        - "process_sets": a list with a dict for each set that this rank is in: "id", "ranks", "batches" (runs
          of requests that went out together), "batch_bytes" (of this rank's inputs in them), "deferred"
          (requests that had to wait for an earlier use of their tensor to end), "failures" (steps that failed
          on all ranks), and "collectives" as above.

    Raises:
        RuntimeError: before `init`, after `shutdown`, or in a forked child.
    """
    require_initialized("stats")
    text = ctypes.create_string_buffer(_TEXT_BYTES)
    failed = _lib.tf_smddp_stats(ctypes.c_int(bool(reset)), text, ctypes.c_size_t(_TEXT_BYTES))
    found = text.value.decode("utf-8", errors="replace")
    if failed:
        raise RuntimeError(found)
    figures: Dict[str, Any] = json.loads(found)
    return figures
